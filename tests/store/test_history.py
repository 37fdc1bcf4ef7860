"""Older versions come from git; without it, the error says how to get them."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kb.config import Root
from kb.errors import EntryNotFoundError, HistoryError
from kb.store import history

WriteEntry = Callable[..., Path]
ID = "kernel/rmsnorm/row-per-cta"
AUTHOR = {
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
}  # fmt: skip


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env={**os.environ, **AUTHOR}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(root: Root, message: str) -> str:
    git(root.path, "add", ".")
    git(root.path, "commit", "-qm", message)
    return git(root.path, "rev-parse", "HEAD")


@pytest.fixture
def commits(root: Root, write_entry: WriteEntry) -> list[str]:
    """Return the commits of versions 1, 2 (twice) and 3 of one entry."""
    git(root.path, "init", "-qb", "main")
    made = []
    for version, kernel, message in ((1, "a", "one"), (2, "b", "two"), (2, "c", "two again"), (3, "c", "three")):
        write_entry(root.entries, ID, version=version, kernel=f"def run(x):\n    return {kernel}\n")
        made.append(commit(root, message))
    write_entry(root.entries, "kernel/rmsnorm/other")
    commit(root, "another entry")
    return made


def test_versions_are_listed_with_the_last_commit_of_each(root: Root, commits: list[str]) -> None:
    found = history.versions(root.entries, ID)
    assert [(each.version, each.commit, each.subject) for each in found] == [
        (3, commits[3], "three"),
        (2, commits[2], "two again"),
        (1, commits[0], "one"),
    ]
    assert found[0].digest == found[1].digest != found[2].digest


def test_an_edit_that_is_not_committed_is_listed(root: Root, write_entry: WriteEntry, commits: list[str]) -> None:
    write_entry(root.entries, ID, version=4, kernel="x = 1\n")
    newest = history.versions(root.entries, ID)[0]
    assert (newest.version, newest.commit, newest.subject) == (4, None, "not committed")


def test_an_older_version_is_read_from_its_commit(root: Root, commits: list[str]) -> None:
    old = history.at(root.entries, ID, 2)
    assert (old.version, old.commit) == (2, commits[2])
    assert old.files["kernel.py"] == b"def run(x):\n    return c\n"
    assert old.readme.startswith("# RMSNorm")
    assert history.at(root.entries, ID).commit is None
    assert history.at(root.entries, ID, 3).commit is None


def test_an_unknown_version_names_those_that_there_are(root: Root, commits: list[str]) -> None:
    with pytest.raises(EntryNotFoundError, match="no version 9") as caught:
        history.at(root.entries, ID, 9)
    assert caught.value.hint == "versions: 1, 2, 3"


def test_two_versions_can_be_compared(root: Root, commits: list[str]) -> None:
    lines = history.diff(history.at(root.entries, ID, 1), history.at(root.entries, ID, 2))
    assert f"--- {ID}@1/kernel.py" in lines
    assert "-    return a" in lines
    assert "+    return c" in lines
    assert history.diff(history.at(root.entries, ID, 1), history.at(root.entries, ID, 1)) == ()


def test_a_removed_entry_still_has_its_versions(root: Root, commits: list[str]) -> None:
    git(root.path, "rm", "-rq", "entries/kernel/rmsnorm/row-per-cta")
    commit(root, "removed")
    assert [each.version for each in history.versions(root.entries, ID)] == [3, 2, 1]
    assert history.at(root.entries, ID, 3).commit == commits[3]


def test_a_broken_commit_and_a_link_are_passed_over(root: Root, write_entry: WriteEntry, commits: list[str]) -> None:
    folder = write_entry(root.entries, ID, facts="not = toml = at all")
    commit(root, "broken")
    write_entry(root.entries, ID, version=5)
    (folder / "link.py").symlink_to("/etc/hostname")
    commit(root, "link")
    (folder / "link.py").unlink()
    write_entry(root.entries, ID, version=6)
    assert [each.version for each in history.versions(root.entries, ID)] == [6, 5, 3, 2, 1]
    assert "link.py" not in history.at(root.entries, ID, 5).files


def test_a_knowledge_base_below_a_larger_repository_works(root: Root, write_entry: WriteEntry) -> None:
    git(root.path.parent, "init", "-qb", "main")
    write_entry(root.entries, ID)
    git(root.path.parent, "add", ".")
    git(root.path.parent, "commit", "-qm", "one")
    write_entry(root.entries, ID, version=2)
    assert history.at(root.entries, ID, 1).commit is not None


def test_outside_of_git_the_present_version_is_there_and_older_ones_say_why(
    root: Root, write_entry: WriteEntry
) -> None:
    write_entry(root.entries, ID, version=2)
    assert history.at(root.entries, ID, 2).version == 2
    for call in (lambda: history.at(root.entries, ID, 1), lambda: history.versions(root.entries, ID)):
        with pytest.raises(HistoryError, match="is in no git repository") as caught:
            call()
        assert "git init" in str(caught.value.hint)


def test_a_repository_without_commits_has_only_the_present_version(root: Root, write_entry: WriteEntry) -> None:
    git(root.path, "init", "-qb", "main")
    write_entry(root.entries, ID)
    assert [each.commit for each in history.versions(root.entries, ID)] == [None]
    with pytest.raises(EntryNotFoundError):
        history.at(root.entries, ID, 2)


def test_a_shallow_clone_says_how_to_get_the_rest(root: Root, commits: list[str], tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{root.path}", "shallow")
    entries = tmp_path / "shallow" / "entries"
    assert history.at(entries, ID, 3).version == 3
    with pytest.raises(HistoryError, match="shallow clone") as caught:
        history.at(entries, ID, 1)
    assert caught.value.hint == "git fetch --unshallow"


def test_a_damaged_repository_is_one_clear_line(root: Root, commits: list[str]) -> None:
    for each in (root.path / ".git" / "objects").rglob("*"):
        if each.is_file():
            each.chmod(0o600)
            each.write_bytes(b"")
    with pytest.raises(HistoryError) as caught:
        history.versions(root.entries, ID)
    assert "\n" not in caught.value.message


def test_without_git_the_error_says_so(root: Root, commits: list[str]) -> None:
    code = (
        "import sys; from pathlib import Path; from kb.store import history; from kb.errors import HistoryError\n"
        "try:\n    history.at(Path(sys.argv[1]), sys.argv[2], 1)\n"
        "except HistoryError as error:\n    print(error.message, '|', error.hint)\n"
    )
    import sys

    done = subprocess.run(
        [sys.executable, "-c", code, str(root.entries), ID],
        env={**os.environ, "PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("git is not installed")
    assert "install git" in done.stdout
