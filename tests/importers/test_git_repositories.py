"""A git repository is a source at a commit; whatever it holds, nothing of it is checked out, run or obeyed."""

import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kb.config import Root
from kb.errors import SourceFormatError, SourceUnavailableError
from kb.importers.repository import locating, opening
from kb.importers.repository.tree import GitTree
from kb.service.importing import Report
from tests.importers.repositories import MIT, commit, commit_tree, git, tree_of

KERNELS = """# Copyright (c) 2024 The Authors
import triton
import triton.language as tl

WIDE = tl.constexpr(2)


@triton.jit
def twice(x):
    return x * WIDE


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, twice(tl.load(x_ptr + at, mask=at < n)), mask=at < n)


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
"""
FILES: dict[str, bytes | tuple[str, bytes]] = {"LICENSE": MIT.encode(), "ops/double.py": KERNELS.encode()}
Run = Callable[..., Report]


def states(report: Report) -> dict[str, str]:
    return {str(line.id).rsplit("/", 1)[-1]: line.state for line in report.lines if line.id}


def reasons(report: Report) -> dict[str, str]:
    return {line.path: str(line.reason) for line in report.lines if line.state == "refused"}


def facts(root: Root, name: str) -> dict[str, Any]:
    (found,) = root.entries.glob(f"technique/*/{name}/entry.toml")
    return tomllib.loads(found.read_text(encoding="utf-8"))


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    place = tmp_path / "ops.git"
    commit(place, FILES)
    return place


def test_a_working_tree_a_bare_repository_and_an_address_are_the_same_source(
    run: Run, bare: Path, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    git(tmp_path, "clone", "--quiet", str(bare), str(tree))
    (tree / "ops" / "double.py").write_text("broken (", encoding="utf-8")  # what is not committed does not count
    git(tmp_path / "tree", "worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    (tmp_path / "linked" / "ops" / "double.py").unlink()
    wanted = {"double-kernel-double": "add", "copy-kernel-double": "add"}
    for source in (bare, tree, tmp_path / "linked", f"file://{bare}", f"{bare}@main", f"file://{bare}@main"):
        assert states(run(source, write=False)) == wanted, source


def test_an_entry_says_where_when_and_under_which_license(root: Root, run: Run, bare: Path) -> None:
    head = git(bare, "rev-parse", "main")
    git(bare, "remote", "add", "origin", "https://someone:secret@example.org/owner/ops.git")
    run(bare)
    source = facts(root, "double-kernel-double")["source"]
    assert (source["origin"], source["commit"], source["path"]) == ("owner/ops", head, "ops/double.py")
    assert source["url"] == "https://example.org/owner/ops"
    folder = next(root.entries.glob("technique/*/double-kernel-double"))
    text = (folder / "kernel.py").read_text(encoding="utf-8")
    assert text.startswith("# Copyright (c) 2024 The Authors\n")
    assert "def twice" in text
    assert "WIDE = " in text
    assert "copy_kernel" not in text
    assert (folder / "LICENSE.txt").read_text(encoding="utf-8") == MIT
    readme = (folder / "README.md").read_text(encoding="utf-8")
    blob = git(bare, "rev-parse", "main:ops/double.py")
    assert blob in readme
    assert f"`{head[:12]}` (2025-01-01)" in readme
    everything = "".join(path.read_text(encoding="utf-8") for path in root.entries.rglob("*") if path.is_file())
    assert "secret" not in everything
    assert "a@example.org" not in everything


def test_a_second_import_changes_nothing_and_a_changed_kernel_alone_gets_a_version(
    root: Root, run: Run, bare: Path, digest: Callable[[], str]
) -> None:
    run(bare)
    before = digest()
    assert set(states(run(bare)).values()) == {"unchanged"}
    assert digest() == before
    first = git(bare, "rev-parse", "main")
    commit(bare, {**FILES, "ops/double.py": KERNELS.replace("constexpr(2)", "constexpr(3)").encode()}, day=2)
    assert states(run(bare)) == {"double-kernel-double": "update", "copy-kernel-double": "unchanged"}
    assert facts(root, "double-kernel-double")["version"] == 2
    assert facts(root, "copy-kernel-double")["version"] == 1
    assert set(states(run(f"{bare}@{first[:10]}", write=False)).values()) == {"update", "unchanged"}


def test_a_commit_a_branch_and_a_tag_can_be_named_and_nothing_else(run: Run, bare: Path) -> None:
    first = git(bare, "rev-parse", "main")
    git(bare, "tag", "v1", first)
    git(bare, "branch", "feature/x", first)
    commit(bare, {"LICENSE": MIT.encode()}, day=2)
    assert states(run(bare, write=False)) == {}
    assert states(run(bare, write=False, stated=(None, "HEAD", None))) == {}
    for stated in (first, first[:8], "v1", "feature/x"):
        assert len(states(run(bare, write=False, stated=(None, stated, None)))) == 2, stated
    for wrong in ("nothing", "--upload-pack=x", "../../HEAD", "main:ops", "main^", "0" * 40, "v1\nv2"):
        with pytest.raises(SourceUnavailableError):
            run(bare, write=False, stated=(None, wrong, None))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("# SPDX-License-Identifier: GPL-3.0-only\n", "GPL-3.0-only is not on the allow-list"),
        ("# This program is under the GNU General Public License.\n", "MIT AND GPL-3.0-only"),
        ('"""Any use is strictly prohibited without a license agreement."""\n', "LicenseRef-proprietary"),
        ("# Under the Research Reciprocity License\n", "Reciprocity"),
    ],
)
def test_what_a_file_says_of_its_license_counts(run: Run, tmp_path: Path, header: str, expected: str) -> None:
    commit(tmp_path / "r", {**FILES, "ops/double.py": (header + KERNELS).encode()})
    report = run(tmp_path / "r", write=False)
    assert states(report) == {}
    assert expected in reasons(report)["ops/double.py"]


def test_code_that_took_in_other_code_is_under_both_licenses(root: Root, run: Run, tmp_path: Path) -> None:
    text = "# Parts are from another project, under the Apache License, Version 2.0.\n" + KERNELS
    commit(tmp_path / "r", {**FILES, "ops/double.py": text.encode()})
    run(tmp_path / "r")
    assert facts(root, "copy-kernel-double")["license"] == "MIT AND Apache-2.0"


def test_no_license_is_no_import(run: Run, tmp_path: Path) -> None:
    commit(tmp_path / "r", {"ops/double.py": KERNELS.encode()})
    assert "no license is stated" in reasons(run(tmp_path / "r", write=False))["ops/double.py"]


def test_the_nearest_license_up_the_tree_counts(root: Root, run: Run, tmp_path: Path) -> None:
    gpl = b"GNU General Public License\n"
    commit(tmp_path / "r", {**FILES, "ops/third/COPYING": gpl, "ops/third/copied.py": b"# x\n" + KERNELS.encode()})
    report = run(tmp_path / "r")
    assert list(reasons(report)) == ["ops/third/copied.py"]
    assert facts(root, "copy-kernel-double")["license"] == "MIT"


def test_a_kernel_that_stands_in_two_files_is_one_entry(run: Run, tmp_path: Path) -> None:
    other = "# another comment\n" + KERNELS.replace("    at = ", "    # places\n    at = ")
    commit(tmp_path / "r", {**FILES, "ops/again.py": other.encode()})
    found = sorted(line.state for line in run(tmp_path / "r").lines if line.id)
    assert found == ["add", "add", "duplicate", "duplicate"]


HOSTILE_CONFIG = """[core]
	repositoryformatversion = 0
	bare = true
	fsmonitor = {mark}
	sshCommand = {mark}
	pager = {mark}
	hooksPath = {place}/hooks
	attributesFile = {place}/evil-attributes
	worktree = /
	askPass = {mark}
[include]
	path = {place}/evil-include
[filter "evil"]
	smudge = {mark}
	clean = {mark}
	process = {mark}
	required = true
[diff "evil"]
	textconv = {mark}
	command = {mark}
[uploadpack]
	packObjectsHook = {mark}
[alias]
	cat-file = !{mark}
	log = !{mark}
[gpg]
	program = {mark}
[log]
	showSignature = true
[remote "origin"]
	url = ext::{mark}
	promisor = true
	uploadpack = {mark}
[extensions]
	partialClone = origin
[protocol]
	allow = always
"""


@pytest.mark.parametrize("layout", ["bare", "tree"])
def test_nothing_that_a_repository_configures_is_run(run: Run, tmp_path: Path, layout: str) -> None:
    place = tmp_path / "r" / ".git" if layout == "tree" else tmp_path / "r"
    attributes = b"* filter=evil diff=evil\n"
    commit(place, {**FILES, ".gitattributes": attributes, ".gitmodules": b'[submodule "x"]\n\turl = ext::sh\n'})
    mark = tmp_path / "mark.sh"
    mark.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n", encoding="utf-8")
    mark.chmod(0o755)
    (place / "config").write_text(HOSTILE_CONFIG.format(mark=mark, place=place), encoding="utf-8")
    (place / "evil-include").write_text(f"[core]\n\tfsmonitor = {mark}\n", encoding="utf-8")
    (place / "evil-attributes").write_bytes(attributes)
    (place / "info").mkdir(exist_ok=True)
    (place / "info" / "attributes").write_bytes(attributes)
    (place / "hooks").mkdir(exist_ok=True)
    for name in ("post-checkout", "pre-auto-gc", "reference-transaction", "post-index-change", "fsmonitor-watchman"):
        (place / "hooks" / name).write_bytes(mark.read_bytes())
        (place / "hooks" / name).chmod(0o755)
    for source in (tmp_path / "r", f"file://{tmp_path / 'r'}"):
        assert len(states(run(source, write=False))) == 2
    assert not (tmp_path / "ran").exists()


def test_objects_and_places_elsewhere_are_not_followed(run: Run, bare: Path, tmp_path: Path) -> None:
    borrowing = tmp_path / "borrowing.git"
    git(tmp_path, "clone", "--quiet", "--bare", "--shared", str(bare), str(borrowing))
    with pytest.raises(SourceFormatError, match="borrows objects"):
        run(borrowing, write=False)
    linked = tmp_path / "linked.git"
    linked.mkdir()
    for name in ("HEAD", "refs", "objects"):
        (linked / name).symlink_to(bare / name)
    with pytest.raises(SourceFormatError, match="link"):
        run(linked, write=False)
    pretender = tmp_path / "pretender"
    pretender.mkdir()
    (pretender / ".git").write_text(f"gitdir: {bare}\n", encoding="utf-8")
    with pytest.raises(SourceFormatError, match="does not lead back"):
        run(pretender, write=False)


def test_links_submodules_and_names_that_lead_elsewhere_are_refused(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "r"
    commit(place, FILES)
    blob = git(place, "rev-parse", "main:ops/double.py")
    mit = git(place, "rev-parse", "main:LICENSE")
    names = [
        b"..",
        b"a\\..\\..\\b.py",
        b"nul",
        b"con.py",
        b"new\nline.py",
        b"\xff\xfe.py",
        b"tab\t.py",
        b"x/../../y.py",
        b"",
    ]
    inner = tree_of(place, [("100644", b"k.py", blob)])
    tree = tree_of(
        place,
        [("100644", name, blob) for name in names]
        + [
            ("100644", b"LICENSE", mit),
            ("40000", b".git", inner),
            ("40000", b"..", inner),
            ("120000", b"link.py", blob),
        ]
        + [("160000", b"module", "1" * 40), ("40000", b"gone", "2" * 40), ("100644", b"gone.py", "3" * 40)]
        + [("777777", b"odd.py", blob)],
    )
    commit_tree(place, tree)
    report = run(place)
    assert set(states(report)) <= {"copy-kernel-nul", "double-kernel-nul", "copy-kernel-con", "double-kernel-con"}
    refused = reasons(report)
    assert "link" in refused["link.py"]
    assert "submodule" in refused["module"]
    assert "leads elsewhere" in refused[".."]
    assert "leads elsewhere" in refused["x/../../y.py"]
    assert "cannot be listed" in refused["gone"]
    assert "not in the repository" in refused["gone.py"]
    assert any("no UTF-8" in reason for reason in refused.values())
    assert not list(tmp_path.rglob("y.py"))


def test_a_commit_that_spells_out_endless_files_is_refused(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "r"
    commit(place, FILES)
    tree = git(place, "rev-parse", "main^{tree}")
    for _ in range(12):
        tree = tree_of(place, [("40000", f"d{number}".encode(), tree) for number in range(10)])
    commit_tree(place, tree)
    code = (
        "import sys\nfrom pathlib import Path\nfrom kb.importers.repository import opening, tree\n"
        "tree.MAX_FOLDERS = 3_000\n"
        "found = opening.opened(sys.argv[1], Path(sys.argv[2]), None)\n"
        "try:\n    print(sum(len(one.files) for one in found.walk()))\n"
        "except Exception as error:\n    print(type(error).__name__, error.message)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(place), str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    assert "SourceFormatError expected at most" in done.stdout


@pytest.mark.parametrize("damage", ["truncated pack", "no pack", "garbage head", "empty", "reftable"])
def test_a_broken_repository_is_refused(run: Run, bare: Path, damage: str, digest: Callable[[], str]) -> None:
    git(bare, "repack", "-a", "-d", "-q")
    (pack,) = (bare / "objects" / "pack").glob("*.pack")
    before = digest()
    if damage == "truncated pack":
        pack.chmod(0o644)
        pack.write_bytes(pack.read_bytes()[:-60])
    elif damage == "no pack":
        pack.unlink()
    elif damage == "garbage head":
        (bare / "HEAD").write_bytes(b"\xff\0 ref: ../../../x")
    elif damage == "empty":
        (bare / "HEAD").write_text("ref: refs/heads/other\n", encoding="ascii")
    else:
        (bare / "HEAD").write_text("ref: refs/heads/.invalid\n", encoding="ascii")
    with suppress(SourceFormatError, SourceUnavailableError):
        assert states(run(bare)) == {}
    assert digest() == before


def test_a_shallow_clone_does_not_claim_to_know_what_changed(root: Root, run: Run, bare: Path, tmp_path: Path) -> None:
    commit(bare, {**FILES, "x.txt": b"x"}, day=2)
    git(tmp_path, "clone", "--quiet", "--bare", "--depth=1", f"file://{bare}", str(tmp_path / "s.git"))
    run(tmp_path / "s.git")
    readme = next(root.entries.glob("technique/*/copy-kernel-double/README.md")).read_text(encoding="utf-8")
    assert "older than the history" in readme


@pytest.mark.parametrize(
    "address",
    ["http://example.org/a/b.git", "git://example.org/a/b.git", "ext::sh -c 'touch x'", "-oProxyCommand=x@h:p.git",
     "ssh://-oProxyCommand=x/a.git", "https://example.org/a b.git", "user@-host:path.git", "fd::3", "file:///nowhere/x.git",
     "host:path.git"],
)  # fmt: skip
def test_other_ways_to_fetch_are_refused(run: Run, address: str) -> None:
    with pytest.raises(SourceUnavailableError):
        run(address, write=False)


def test_an_address_and_its_commit_are_told_apart() -> None:
    assert locating.split("https://example.org/a/b@v1") == ("https://example.org/a/b", "v1")
    assert locating.split("git@example.org:a/b.git@abc1234") == ("git@example.org:a/b.git", "abc1234")
    assert locating.split("git@example.org:a/b.git") == ("git@example.org:a/b.git", None)
    assert locating.split("ssh://git@example.org/a/b") == ("ssh://git@example.org/a/b", None)


def test_a_fetch_is_ended_where_it_brings_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "large").write_bytes(b"x" * 4096)
    monkeypatch.setattr(locating, "MAX_FETCH_BYTES", 100)
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert "more than" in str(locating._watched(sleeper, own))
    assert sleeper.returncode is not None


def test_a_commit_is_read_with_its_own_folders_alone(bare: Path, tmp_path: Path) -> None:
    tree = opening.opened(str(bare), tmp_path, None)
    assert isinstance(tree, GitTree)
    try:
        assert tree.exists("ops/double.py")
        assert not tree.exists("ops")
        assert not tree.exists("ops/../LICENSE")
        with pytest.raises(SourceFormatError, match="at most 10 bytes"):
            tree.read("ops/double.py", limit=10)
        assert tree.read("ops/double.py") == KERNELS.encode()
        for path in ("/etc/passwd", "../x", "ops", "nothing", "ops/double.py/x"):
            with pytest.raises(SourceFormatError):
                tree.read(path)
    finally:
        tree.objects.close()
