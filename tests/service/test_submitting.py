"""Submissions become one commit on a branch; the working tree stays as it is."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kb.config import Root
from kb.errors import ConfigError, EntryFormatError, EntryNotFoundError, HistoryError
from kb.service.stated_license import license_of
from kb.service.submission import Submission
from kb.service.submitting import submit

NEGATIVE = Submission(
    title="Fusing the residual loses below 64 rows",
    claim="Fusing was tried; the launch it saves is less than what it costs.",
    operator="rmsnorm",
    outcome="regression",
    condition="sm_90, 32 rows, bfloat16",
    effect="1.3 times slower than two kernels",
    license="CC0-1.0",
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


HEADED = "# SPDX-License-Identifier: MIT\ndef run(x):\n    return x\n"
BOTH = "# SPDX-License-Identifier: MIT\n# SPDX-License-Identifier: BSD-3-Clause\n"


@pytest.mark.parametrize(
    ("stated", "source", "made"),
    [
        ("Apache-2.0", None, "Apache-2.0"),
        (None, HEADED, "MIT"),
        ("MIT", HEADED, "MIT"),
        (" MIT  AND Apache-2.0 ", HEADED, "MIT AND Apache-2.0"),
        ("MIT AND BSD-3-Clause", BOTH, "MIT AND BSD-3-Clause"),
    ],
)
def test_the_license_is_the_one_that_was_stated(stated: str | None, source: str | None, made: str) -> None:
    assert license_of(stated, source) == made


@pytest.mark.parametrize(
    ("stated", "source", "expected"),
    [
        (None, None, "license is missing"),
        ("  ", "def run(x):\n    return x\n", "license is missing"),
        ("NOASSERTION", None, "is none"),
        ("Apache-2.0", HEADED, "the source says MIT"),
        ("MIT OR Apache-2.0", HEADED, "the source says MIT"),
        (None, BOTH, "names 2 licenses"),
    ],
)
def test_no_license_is_made_up(base: Root, stated: str | None, source: str | None, expected: str) -> None:
    made = Submission(**{**vars(NEGATIVE), "license": stated, "source": source, "arch": ("sm_90",)})
    with pytest.raises(EntryFormatError, match=expected) as caught:
        submit(base, made, author="a")
    assert caught.value.hint
    assert not git(base, "branch", "--list", "submissions")


def test_what_is_filed_has_the_stated_license(base: Root) -> None:
    done = submit(base, NEGATIVE, author="a")
    assert 'license = "CC0-1.0"' in git(base, "show", f"submissions:entries/{done.id}/entry.toml")
