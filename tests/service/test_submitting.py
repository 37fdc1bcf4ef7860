"""Submissions become one commit on a branch; the working tree stays as it is."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kb.config import Root
from kb.errors import ConfigError, EntryFormatError, EntryNotFoundError, HistoryError
from kb.service.submission import Submission
from kb.service.submitting import submit

NEGATIVE = Submission(
    title="Fusing the residual loses below 64 rows",
    claim="Fusing was tried; the launch it saves is less than what it costs.",
    operator="rmsnorm",
    outcome="regression",
    condition="sm_90, 32 rows, bfloat16",
    effect="1.3 times slower than two kernels",
)


def git(root: Root, *arguments: str) -> str:
    command = ["git", "-C", str(root.path), "-c", "user.name=t", "-c", "user.email=t@localhost", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def base(root: Root, write_entry: Callable[..., Path]) -> Root:
    write_entry(root.entries)
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-qm", "begin")
    return root


def test_a_negative_result_is_one_commit_by_its_author_and_nothing_else_changes(base: Root) -> None:
    head = git(base, "rev-parse", "HEAD")
    done = submit(base, NEGATIVE, author="ci-agent")
    assert (done.state, done.branch) == ("filed", "submissions")
    assert git(base, "log", "--format=%an", "main..submissions").split() == ["ci-agent"]
    assert git(base, "show", f"submissions:entries/{done.id}/README.md").startswith("# Fusing the residual")
    assert git(base, "rev-parse", "HEAD") == head
    assert git(base, "status", "--short") == ""
    git(base, "fsck", "--strict")


def test_the_same_content_twice_is_filed_once(base: Root) -> None:
    first, second = (submit(base, NEGATIVE, author=name) for name in ("one", "two"))
    assert (second.state, second.id, second.commit) == ("unchanged", first.id, first.commit)


@pytest.mark.parametrize("branch", ["--help", "a..b", "x y", "", "HEAD", "../main"])
def test_what_is_no_branch_is_refused(base: Root, branch: str) -> None:
    with pytest.raises(ConfigError):
        submit(base, NEGATIVE, author="a", branch=branch)


def test_a_branch_that_is_checked_out_is_refused(base: Root) -> None:
    with pytest.raises(ConfigError, match="checked out"):
        submit(base, NEGATIVE, author="a", branch="main")


def test_what_is_missing_is_said(base: Root) -> None:
    with pytest.raises(EntryFormatError, match="needs condition and effect"):
        submit(base, Submission(title="It loses", claim="It loses everywhere.", outcome="regression"), author="a")
    lost = Submission(**{**vars(NEGATIVE), "parents": ("kernel/rmsnorm/none-such",)})
    with pytest.raises(EntryNotFoundError):
        submit(base, lost, author="a")


def test_without_git_there_is_nowhere_to_file(root: Root, write_entry: Callable[..., Path]) -> None:
    write_entry(root.entries)
    with pytest.raises(HistoryError):
        submit(root, NEGATIVE, author="a")
