"""References and the versions behind them."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kb.config import Root
from kb.errors import EntryFormatError, EntryNotFoundError, HistoryError
from kb.service import history

WriteEntry = Callable[..., Path]
ID = "kernel/rmsnorm/row-per-cta"


@pytest.mark.parametrize(("text", "meant"), [(ID, (ID, None)), (f"{ID}@2", (ID, 2)), (f"{ID}@v12", (ID, 12))])
def test_a_reference_is_an_id_and_maybe_a_version(text: str, meant: tuple[str, int | None]) -> None:
    assert history.parse_reference(text) == meant


@pytest.mark.parametrize("text", ["", "@", f"{ID}@", f"{ID}@two", f"{ID}@1@2", "../x@1", f"{ID}@99999999", f"{ID}@1\n"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(EntryFormatError):
        history.parse_reference(text)


def test_an_unknown_id_names_the_nearest(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    subprocess.run(["git", "init", "-q"], cwd=root.path, check=True)
    for call in (
        lambda: history.show(root, "kernel/rmsnorm/row-per-ctas"),
        lambda: history.show(root, "kernel/rmsnorm/row-per-ctas@1"),
        lambda: history.history(root, "kernel/rmsnorm/row-per-ctas"),
    ):
        with pytest.raises(EntryNotFoundError) as caught:
            call()
        assert caught.value.hint == f"nearest: {ID}"


def test_show_and_diff_work_between_versions(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "x"]):
        subprocess.run(
            ["git", *command], cwd=root.path, check=True, env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
        )
    write_entry(root.entries, version=2, kernel="x = 2\n")
    assert history.show(root, ID).version == 2
    assert history.show(root, f"{ID}@1").files["kernel.py"].startswith(b"def run")
    assert "+x = 2" in history.diff(root, f"{ID}@1")
    assert "-x = 2" in history.diff(root, f"{ID}@2", f"{ID}@1")
    assert [each.version for each in history.history(root, ID)] == [2, 1]
    with pytest.raises(EntryNotFoundError) as caught:
        history.show(root, f"{ID}@3")
    assert caught.value.hint == "versions: 1, 2"


def test_outside_of_git_an_older_version_says_how_to_get_it(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries, version=2)
    assert history.show(root, f"{ID}@2").version == 2
    with pytest.raises(HistoryError):
        history.show(root, f"{ID}@1")


def test_a_repository_that_git_refuses_is_no_empty_history(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    subprocess.run(["git", "init", "-q"], cwd=root.path, check=True)
    assert [each.commit for each in history.history(root, ID)] == [None]
    (root.path / ".git/refs/heads/main").write_text("0" * 39 + "\n")
    (root.path / ".git/HEAD").write_text("nonsense\n")
    with pytest.raises(HistoryError):
        history.history(root, ID)
