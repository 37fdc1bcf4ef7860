"""A new knowledge base is a git repository that works at once."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kb.config import Root, is_root
from kb.errors import ConfigError
from kb.service.adding import add
from kb.service.checking import check
from kb.service.initialising import init

WriteEntry = Callable[..., Path]
REPOSITORY = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def no_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let git know no name and no address."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "EMAIL"):
        monkeypatch.delenv(name, raising=False)


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def test_a_new_folder_becomes_a_committed_knowledge_base(tmp_path: Path) -> None:
    made = init(tmp_path / "deep" / "base")
    assert made.state == "made"
    assert is_root(made.path)
    assert git(made.path, "rev-parse", "HEAD") == made.commit
    assert git(made.path, "status", "--porcelain") == ""
    assert git(made.path, "log", "-1", "--format=%an <%ae> %s") == (
        "kernel-kb <kernel-kb@localhost> New knowledge base"
    )
    assert git(made.path, "branch", "--show-current") == "main"
    assert ".kb/" in (made.path / ".gitignore").read_text()


def test_the_users_identity_is_used_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "gitconfig"
    settings.write_text("[user]\n\tname = Ada\n\temail = ada@example.org\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    made = init(tmp_path / "base")
    assert git(made.path, "log", "-1", "--format=%an") == "Ada"


def test_a_clone_of_it_is_a_knowledge_base(tmp_path: Path) -> None:
    init(tmp_path / "base")
    git(tmp_path, "clone", "-q", "base", "clone")
    assert is_root(tmp_path / "clone")


def test_it_takes_an_entry_and_checks(tmp_path: Path, write_entry: WriteEntry) -> None:
    root = Root(init(tmp_path / "base").path)
    add(write_entry(tmp_path / "draft"), None, root)
    report = check(None, root)
    assert (report.ok, report.entries) == (True, 1)
    assert git(root.path, "status", "--porcelain", "-uall").splitlines() == [
        f"?? entries/kernel/rmsnorm/row-per-cta/{name}" for name in ("README.md", "entry.toml", "kernel.py")
    ]


def test_a_second_time_changes_nothing_and_says_so(tmp_path: Path) -> None:
    init(tmp_path / "base")
    again = init(tmp_path / "base")
    assert again.state == "already"
    assert "already" in str(again.note)


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(ConfigError, match="expected a new or an empty folder"):
        init(tmp_path)
    with pytest.raises(ConfigError, match="expected a new or an empty folder"):
        init(tmp_path / "mine.txt")
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("there", [True, False])
def test_what_git_cannot_finish_leaves_nothing(tmp_path: Path, there: bool) -> None:
    base, programs = tmp_path / "base", tmp_path / "programs"
    programs.mkdir()
    if there:
        base.mkdir()
    failing = programs / "git"
    failing.write_text(
        f'#!/bin/sh\n[ "$1" = version ] && exec {shutil.which("git")} version\n'
        "echo 'fatal: No space left on device' >&2\nexit 128\n"
    )
    failing.chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "kb", "init", str(base)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0].endswith(f"{base}: fatal: No space left on device")
    assert base.exists() == there
    assert not there or not any(base.iterdir())
    assert init(base).state == "made"


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        init(tmp_path / "file" / "base")
