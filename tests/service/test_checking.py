"""A check reports every problem of every entry, and compares versions with the default branch."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kb.config import Root
from kb.errors import EntryFormatError, EntryNotFoundError
from kb.service.checking import check, require_valid
from kb.service.findings import CheckReport

WriteEntry = Callable[..., Path]
ID = "kernel/rmsnorm/row-per-cta"
AUTHOR = {
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
}  # fmt: skip


def git(root: Root, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root.path, env={**os.environ, **AUTHOR}, capture_output=True, check=True)


def commit(root: Root) -> None:
    git(root, "add", ".")
    git(root, "commit", "-qm", "x")


def messages(report: CheckReport, severity: str = "problem") -> list[str]:
    return [each.message for each in report.findings if each.severity == severity]


def edit(folder: Path, old: str, new: str) -> None:
    file = folder / "entry.toml"
    file.write_text(file.read_text().replace(old, new))


def test_a_good_store_has_no_problem(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    report = check(None, root)
    assert (report.ok, report.entries) == (True, 1)
    require_valid(report)


def test_every_problem_of_every_entry_is_reported(root: Root, write_entry: WriteEntry) -> None:
    folder = write_entry(root.entries)
    edit(folder, "version = 1", "version = 0")
    edit(folder, '"bfloat16"', '"bf16"')
    (folder / "README.md").write_text("a\n" * 61)
    write_entry(root.entries, "kernel/rmsnorm/b", facts="x =")
    (root.entries / "stray.bin").write_text("")
    report = check(None, root)
    assert len(report.problems) == 5
    assert not report.ok
    assert all(each.hint for each in report.problems)
    assert "entries/kernel/rmsnorm/row-per-cta/README.md: expected at most 60 lines, found 61" in messages(report)
    with pytest.raises(EntryFormatError):
        require_valid(report)


def test_duplicate_ids_are_reported(root: Root, write_entry: WriteEntry) -> None:
    for topic in ("split-k", "split_k"):
        write_entry(root.entries, f"technique/{topic}/a")
    assert [each for each in messages(check(None, root)) if "duplicate id" in each]


def test_only_the_asked_paths_are_checked(root: Root, write_entry: WriteEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    write_entry(root.entries, "kernel/rmsnorm/a")
    folder = write_entry(root.entries, "kernel/rmsnorm/b")
    write_entry(root.entries, "kernel/layernorm/c")
    monkeypatch.chdir(root.path)
    asked = {
        "kernel/rmsnorm/a": 1,
        "entries/kernel/rmsnorm": 2,
        str(folder / "kernel.py"): 1,
        ".": 3,
        "kernel": 3,
    }
    assert {each: check([each], root).entries for each in asked} == asked


@pytest.mark.parametrize("path", ["kernel/rmsnorm/nowhere", "/etc"])
def test_a_path_to_nothing_is_one_clear_line(root: Root, path: str) -> None:
    with pytest.raises(EntryNotFoundError):
        check([path], root)


def test_a_path_out_of_the_store_is_refused(root: Root, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    with pytest.raises(EntryNotFoundError, match="is not below"):
        check(["entries/../../outside"], root)
    with pytest.raises(EntryFormatError):
        check(["kernel/../nowhere"], root)


def test_an_operator_without_a_spec_is_a_warning(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries, "kernel/no_such_operator/a")
    report = check(None, root)
    assert report.ok
    assert "operator 'no_such_operator' has no spec" in messages(report, "warning")[0]


def test_references_to_nothing_are_problems(root: Root, write_entry: WriteEntry) -> None:
    folder = write_entry(root.entries)
    with (folder / "entry.toml").open("a") as file:
        file.write('\n[[lineage]]\nparent = "kernel/rmsnorm/gone"\nrelation = "mutated"\n')
    edit(folder, 'language = "triton"', f'language = "triton"\nuses = ["kernel/rmsnorm/lost", "{ID}"]')
    told = messages(check(None, root))
    assert len(told) == 3
    assert "field lineage.parent: expected the id of an entry, found 'kernel/rmsnorm/gone'" in told[0]
    assert "field uses: an entry cannot refer to itself" in told[1]
    assert "field uses: expected the id of an entry, found 'kernel/rmsnorm/lost'" in told[2]


def test_a_campaign_needs_a_target_of_that_kind(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    campaign = write_entry(root.entries, "campaign/some_model/a")
    with (campaign / "entry.toml").open("a") as file:
        file.write(f'\n[campaign]\ntarget = "{ID}"\nbaseline = "none"\nreused = ["kernel/rmsnorm/gone"]\n')
    told = messages(check(None, root))
    assert f"field campaign.target: expected an entry of kind target, found {ID}" in told[1]
    assert "field campaign.reused: expected the id of an entry, found 'kernel/rmsnorm/gone'" in told[0]


def test_an_axis_that_the_operator_does_not_have_is_a_problem(root: Root, write_entry: WriteEntry) -> None:
    pytest.importorskip("torch")
    edit(write_entry(root.entries), "[source]", "[limits]\nhiden_size = { max = 8 }\n\n[source]")
    assert (
        "field limits.hiden_size: expected an axis of rmsnorm (num_tokens, hidden_size)"
        in messages(check(None, root))[0]
    )


def test_two_ids_for_the_same_code_are_a_warning(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries, "kernel/rmsnorm/a")
    write_entry(root.entries, "kernel/rmsnorm/b")
    assert messages(check(None, root), "warning") == [
        "entries/kernel/rmsnorm/b: what runs is the same as in kernel/rmsnorm/a"
    ]


def test_outside_of_git_a_note_says_that_versions_were_not_compared(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    assert "versions were not compared" in messages(check(None, root), "note")[0]
    assert messages(check(None, root, history=False), "note") == []


def test_a_change_of_what_runs_needs_a_new_version(root: Root, write_entry: WriteEntry) -> None:
    git(root, "init", "-qb", "main")
    write_entry(root.entries)
    write_entry(root.entries, "kernel/rmsnorm/other", kernel="y = 1\n")
    assert "nothing is committed yet" in messages(check(None, root), "note")[0]
    commit(root)
    assert check(None, root).findings == ()
    write_entry(root.entries, kernel="x = 2\n")
    report = check(None, root)
    assert len(report.problems) == 1
    assert "field version: expected more than 1, because what runs differs from" in report.problems[0].message
    assert report.problems[0].hint == f"set version = 2 in entries/{ID}/entry.toml"
    write_entry(root.entries, kernel="x = 2\n", version=2)
    assert check(None, root).ok
    write_entry(root.entries, readme="# Other words\n")
    assert check(None, root).ok


def test_the_comparison_is_with_where_the_branch_began(root: Root, write_entry: WriteEntry) -> None:
    git(root, "init", "-qb", "main")
    write_entry(root.entries)
    commit(root)
    git(root, "switch", "-qc", "work")
    write_entry(root.entries, kernel="x = 2\n")
    commit(root)
    assert not check(None, root).ok
    write_entry(root.entries, kernel="x = 3\n", version=2)
    commit(root)
    write_entry(root.entries, kernel="x = 4\n", version=2)
    assert check(None, root).ok
    write_entry(root.entries, version=2)
    commit(root)
    git(root, "switch", "-q", "main")
    git(root, "merge", "-q", "work")
    write_entry(root.entries, version=1)
    assert "field version: expected at least 2" in messages(check(None, root))[0]


def test_a_check_of_the_starter_entries_needs_no_git_and_no_torch(root: Root, write_entry: WriteEntry) -> None:
    edit(write_entry(root.entries), "[source]", "[limits]\nhidden_size = { max = 8 }\n\n[source]")
    code = (
        "import importlib.util, sys; from pathlib import Path\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'torch' else find(name, *rest)\n"
        "from kb.config import Root; from kb.service.checking import check\n"
        "report = check(None, Root(Path(sys.argv[1]), packaged=True))\n"
        "print(report.ok, [each.message for each in report.findings], 'torch' in sys.modules, 'git' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(root.path)], capture_output=True, text=True, check=True)
    note = "the axes that limits name were not checked: torch is not installed"
    assert done.stdout.strip() == f"True ['{note}'] False False"
