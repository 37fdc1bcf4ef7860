"""Every command: a result on stdout, all else on stderr, JSON that a script can read, an error in one line."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kb import launch
from kb.config import Root

Capture = pytest.CaptureFixture[str]
WriteEntry = Callable[..., Path]


def call(capsys: Capture, *argv: str | Path) -> tuple[int, str, str]:
    """Run one command in this process; return its exit code, stdout and stderr."""
    code = launch.main([str(one) for one in argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def json_of(capsys: Capture, *argv: str | Path) -> Any:  # noqa: ANN401 - plain JSON
    code, out, _ = call(capsys, *argv, "--json")
    assert code == 0, out
    return json.loads(out)


def test_a_stranger_gets_from_nothing_to_a_search(tmp_path: Path, write_entry: WriteEntry, capsys: Capture) -> None:
    base = tmp_path / "mine"
    assert call(capsys, "init", base)[0] == 0
    draft = write_entry(tmp_path / "draft", "kernel/rmsnorm/one-row")
    code, out, _ = call(capsys, "add", draft, "--root", base)
    assert (code, out) == (0, "kernel/rmsnorm/one-row@1: added\n")
    assert call(capsys, "add", draft, "--root", base)[1] == "kernel/rmsnorm/one-row@1: unchanged\n"
    hits = json_of(capsys, "search", "rmsnorm", "--root", base)["hits"]
    assert [hit["id"] for hit in hits] == ["kernel/rmsnorm/one-row"]
    assert json_of(capsys, "check", "--root", base)["ok"]


def test_history_and_diff_come_from_git(tmp_path: Path, write_entry: WriteEntry, capsys: Capture) -> None:
    base = tmp_path / "mine"
    call(capsys, "init", base)
    commit = ("git", "-C", str(base), "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qam", "more")
    for version, kernel in ((1, "def run(x):\n    return x\n"), (2, "def run(x):\n    return x + 0\n")):
        write_entry(tmp_path / "draft", version=version, kernel=kernel)
        assert call(capsys, "add", tmp_path / "draft/kernel/rmsnorm/row-per-cta", "--root", base)[0] == 0
        subprocess.run(["git", "-C", str(base), "add", "."], check=True)
        subprocess.run(commit, check=True)
    versions = json_of(capsys, "history", "kernel/rmsnorm/row-per-cta", "--root", base)
    assert [one["version"] for one in versions] == [2, 1]
    code, out, _ = call(capsys, "diff", "kernel/rmsnorm/row-per-cta@1", "--root", base)
    assert code == 0
    assert "+    return x + 0" in out
    old = json_of(capsys, "show", "kernel/rmsnorm/row-per-cta@1", "--root", base)
    assert old["version"] == 1
    assert "return x\n" in old["contents"]["kernel.py"]
    now = json_of(capsys, "show", "row-per-cta", "--root", base)
    assert {*now} == {*old} - {"commit", "contents"}
    assert now["facts"].keys() == old["facts"].keys()
    code, out, _ = call(capsys, "show", "row-per-cta@1", "--root", base)
    assert code == 0
    assert out.startswith("kernel/rmsnorm/row-per-cta@1\nRMSNorm, one CTA a row\n")
    shutil.rmtree(base / "entries/kernel")
    code, gone, _ = call(capsys, "show", "kernel/rmsnorm/row-per-cta@1", "--root", base)
    assert (code, gone) == (0, out)
    assert call(capsys, "show", "kernel/rmsnorm/row-per-cta", "--root", base)[0] == 3


def test_a_slug_will_do_wherever_an_id_does(root: Root, write_entry: WriteEntry, capsys: Capture) -> None:
    write_entry(root.entries, "kernel/rmsnorm/rows")
    subprocess.run(["git", "init", "-q", str(root.path)], check=True)
    for argv in (["show", "rows"], ["history", "rows"], ["diff", "rows", "rows@1"]):
        assert call(capsys, *argv, "--root", root.path)[0] == 0, argv
    write_entry(root.entries, "kernel/layernorm/rows")
    for command in ("show", "history"):
        code, _, err = call(capsys, command, "rows", "--root", root.path)
        assert code == 3
        assert "is the slug of 2 entries" in err


def test_a_shallow_clone_says_that_its_history_may_lack_something(
    tmp_path: Path, write_entry: WriteEntry, capsys: Capture
) -> None:
    base = tmp_path / "mine"
    call(capsys, "init", base)
    write_entry(base / "entries")
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", "-C", str(base), "add", "."], check=True)
    subprocess.run(["git", "-C", str(base), *identity, "commit", "-qm", "more"], check=True)
    subprocess.run(["git", "clone", "-q", "--depth", "1", base.as_uri(), str(tmp_path / "few")], check=True)
    _, _, err = call(capsys, "history", "row-per-cta", "--root", tmp_path / "few")
    assert "git fetch --unshallow" in err
    assert call(capsys, "history", "row-per-cta", "--root", base)[2] == ""


def test_a_changed_kernel_without_a_new_version_is_refused(
    root: Root, tmp_path: Path, write_entry: WriteEntry, capsys: Capture
) -> None:
    draft = write_entry(tmp_path / "draft")
    call(capsys, "add", draft, "--root", root.path)
    write_entry(tmp_path / "draft", kernel="def run(x):\n    return -x\n")
    code, out, err = call(capsys, "add", draft, "--root", root.path)
    assert (code, out) == (5, "")
    assert err.startswith("kb: ")
    assert "version" in err


def test_check_fails_with_the_code_of_a_format_error(root: Root, write_entry: WriteEntry, capsys: Capture) -> None:
    write_entry(root.entries, facts="schema = 1\nversion = 'one'\n")
    code, out, err = call(capsys, "check", "--root", root.path)
    assert code == 4
    assert "entry.toml" in out
    assert "1 entries" in err


def test_status_shows_what_runs_where(root: Root, write_entry: WriteEntry, capsys: Capture) -> None:
    write_entry(root.entries)
    found = json_of(capsys, "status", "--device", "H100", "--device", "B200", "--root", root.path)
    assert [cell["transfer"] for cell in found["rows"][0]["cells"]] == ["recompile", "retune"]
    code, out, _ = call(capsys, "status", "--root", root.path)
    assert code == 0
    assert "kernel/rmsnorm/row-per-cta@1" in out


@pytest.mark.parametrize(
    ("columns", "first"),
    [("70", "kernel/rmsnorm/row-per-cta@1  works"), ("160", "entry                          outcome")],
)
def test_a_terminal_too_narrow_for_the_matrix_gets_lines(
    root: Root, write_entry: WriteEntry, columns: str, first: str
) -> None:
    write_entry(root.entries)
    terminal, its_end = pty.openpty()
    devices = ("--device", "H100", "--device", "H200", "--device", "B200")
    command = [sys.executable, "-m", "kb", "status", *devices, "--root", str(root.path)]
    subprocess.run(command, stdout=its_end, check=True, env={**os.environ, "COLUMNS": columns})
    os.close(its_end)
    lines = [line.strip() for line in os.read(terminal, 4096).decode().splitlines() if line.strip()]
    os.close(terminal)
    assert re.sub("\x1b.*?m", "", lines[0]).startswith(first)
    assert len(lines) == (4 if columns == "70" else 3)


def test_index_says_what_it_did_and_what_it_left_out(root: Root, write_entry: WriteEntry, capsys: Capture) -> None:
    write_entry(root.entries)
    write_entry(root.entries, "kernel/rmsnorm/broken", facts="version = ")
    found = json_of(capsys, "index", "--rebuild", "--root", root.path)
    assert found["updated"]
    assert [one["where"] for one in found["left_out"]] == ["kernel/rmsnorm/broken"]
    assert found["embedded"] == 1


def test_index_can_leave_embeddings_out(root: Root, write_entry: WriteEntry, capsys: Capture) -> None:
    write_entry(root.entries)
    assert json_of(capsys, "index", "--no-embeddings", "--root", root.path)["embedded"] is None


def test_index_without_an_embedder_says_so_and_goes_on(
    root: Root, write_entry: WriteEntry, capsys: Capture, tmp_path: Path
) -> None:
    write_entry(root.entries)
    assert call(capsys, "config", "set", "embedder", f"onnx-minilm:{tmp_path / 'nowhere'}")[0] == 0
    code, out, err = call(capsys, "index", "--root", root.path)
    assert code == 0
    assert "catalogue.db" in out
    assert "no embeddings" in err


def test_doctor_answers_in_json(root: Root, capsys: Capture) -> None:
    found = json_of(capsys, "doctor", "--root", root.path)
    assert {"python", "git"} <= {one["name"] for one in found}


def test_settings_are_kept_private_and_checked(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KB_CONFIG_DIR", str(tmp_path / "settings"))
    assert call(capsys, "config", "set", "dense_weight", "0.25")[0] == 0
    assert call(capsys, "config", "get", "dense_weight")[1] == "0.25\n"
    file = Path(call(capsys, "config", "path")[1].strip())
    assert file.stat().st_mode & 0o777 == 0o600
    code, _, err = call(capsys, "config", "set", "dense_weight", "2")
    assert code == 2
    assert "0 to 1" in err
    code, _, err = call(capsys, "config", "set", "embeder", "x")
    assert (code, "embedder" in err) == (2, True)
    assert call(capsys, "config", "unset", "dense_weight")[0] == 0
    assert json_of(capsys, "config")["settings"]["dense_weight"] == 0.0


def test_a_broken_settings_file_is_named(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KB_CONFIG_DIR", str(tmp_path))
    (tmp_path / "config.toml").write_text("embedder = ", encoding="utf-8")
    code, out, err = call(capsys, "config")
    assert (code, out) == (2, "")
    assert str(tmp_path / "config.toml") in err


def test_operators_are_listed_and_shown(capsys: Capture) -> None:
    names = {one["name"] for one in json_of(capsys, "operators")}
    assert {"rmsnorm", "gemm", "moe_grouped_gemm_nvfp4"} <= names
    assert json_of(capsys, "operators", "rmsnorm")["signature"] == "rmsnorm(x, weight, eps=1e-6)"
    code, _, err = call(capsys, "operators", "rmsnrm")
    assert (code, "rmsnorm" in err) == (8, True)


def test_a_rejected_candidate_exits_with_20_and_says_why(tmp_path: Path, capsys: Capture) -> None:
    candidate = tmp_path / "zeros.py"
    candidate.write_text("import torch\ndef run(x):\n    return torch.zeros_like(x)\n", encoding="utf-8")
    code, out, _ = call(capsys, "judge", "--operator", "silu", candidate, "--json")
    assert code == 20
    found = json.loads(out)
    assert (found["verdict"], found["reasons"]) == ("rejected", ["wrong_values"])


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["judge", "--operator", "silu", "missing.py"], 4),
        (["judge", "--operator", "slu", "missing.py"], 8),
        (["add", "missing"], 3),
        (["history", "kernel/rmsnorm/none"], 3),
        (["diff", "kernel/rmsnorm/none@1"], 3),
        (["status", "--device", "H1000"], 9),
        (["show", "kernel/rmsnorm/none"], 3),
        (["search"], 7),
        (["nonsense"], 2),
        (["index", "--root", "/nonexistent"], 2),
    ],
)
def test_an_error_is_one_line_a_hint_and_its_code(argv: list[str], code: int, capsys: Capture) -> None:
    got, out, err = call(capsys, *argv)
    assert got == code, err
    assert out == ""
    assert [line.split(":")[0] for line in err.splitlines()] == ["kb", "hint"]


def test_help_names_every_command(capsys: Capture) -> None:
    code, out, _ = call(capsys, "--help")
    assert code == 0
    for name in (
        "init",
        "search",
        "show",
        "list",
        "history",
        "diff",
        "add",
        "check",
        "index",
        "status",
        "config",
        "doctor",
    ):
        assert name in out


def test_the_fast_commands_have_the_options_that_their_help_shows(capsys: Capture) -> None:
    import typer

    from kb.cli.main import app

    group = typer.main.get_command(app)
    for name in ("search", "list", "show"):
        slow = {o for p in group.commands[name].params for o in p.opts if o.startswith("--")}  # type: ignore[attr-defined]
        with pytest.raises(SystemExit):
            launch.main([name, "--help"])
        fast = capsys.readouterr().out
        assert {one for one in slow if one not in fast} == set(), name
