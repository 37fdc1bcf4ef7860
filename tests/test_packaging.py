"""The package is what the tree says: folders, links, names, documents."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kb.validators.operators.names import NAMES

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS = {"kb": "kb", "kb.retrieval": "retrieval", "kb.validators": "validators", "kb.importers": "importers"}


def packages() -> set[str]:
    """Return the packages that stand in the tree."""
    found = {"kb.starter.entries"}
    for package, folder in FOLDERS.items():
        for file in (ROOT / folder).rglob("__init__.py"):
            parts = file.parent.relative_to(ROOT / folder).parts
            if package == "kb" and parts and parts[0] in ("retrieval", "validators", "importers"):
                continue
            found.add(".".join((package, *parts)))
    return found


def test_every_package_of_the_tree_is_in_the_wheel() -> None:
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == packages()


@pytest.mark.parametrize("name", ["retrieval", "validators", "importers"])
def test_a_top_level_folder_refuses_its_short_name(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert f"import kb.{name}" in done.stderr


@pytest.mark.parametrize("name", ["retrieval", "validators", "importers"])
def test_the_links_are_relative(name: str) -> None:
    link = ROOT / "kb" / name
    if link.is_symlink():
        assert str(link.readlink()) == f"../{name}"
    else:
        # A clone without links: git wrote the target as text, which only type checkers and linters miss.
        assert link.read_text(encoding="utf-8") == f"../{name}"


def test_the_operator_names_are_the_files_of_the_folder() -> None:
    helpers = {"__init__", "names", "spec", "formats"}
    files = {file.stem for file in (ROOT / "validators" / "operators").glob("*.py")}
    public = {name for name in files - helpers if not name.startswith("_")}
    assert set(NAMES) <= public
    for extra in public - set(NAMES):
        assert "SPEC =" not in (ROOT / "validators" / "operators" / f"{extra}.py").read_text(encoding="utf-8")
    assert list(NAMES) == sorted(NAMES)


def test_versions_agree() -> None:
    from kb import __version__

    assert PROJECT["project"]["version"] == __version__


def test_links_and_folders_of_the_documents_exist() -> None:
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "entries/README.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
            assert ((ROOT / name).parent / target).exists(), (name, target)
    for folder in re.findall(r"^\| `(\w+)/` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE):
        assert (ROOT / folder).is_dir(), folder


def test_the_readme_shows_what_a_search_answers() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^ \d  (\S+)@\d", text, re.MULTILINE)
    command = [
        sys.executable,
        "-m",
        "kb",
        "search",
        "nvfp4 moe grouped gemm",
        "--device",
        "NVIDIA H100",
        "--limit",
        "3",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.findall(r"^ \d  (\S+)@\d", done.stdout, re.MULTILINE) == shown


def test_the_readme_has_the_two_commands() -> None:
    commands = re.findall(r"^\$ (.+)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(commands) == 2
    assert "kb search" in commands[0]
    assert "pytest" in commands[1]


def test_no_file_is_long_and_no_path_is_of_one_machine() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout: nothing to list")
    for name in listed.stdout.split():
        file = ROOT / name
        if name.startswith("entries/") or not file.is_file():
            continue
        text = file.read_text(encoding="utf-8")
        # A test file may be a little longer than a source: its fixtures stand in it.
        assert text.count("\n") <= (420 if name.startswith("tests/") else 400), name
        assert "/" + "root/" not in text, name
