"""The console script starts fast, answers scripts and people, and fails in one line."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kb import launch

REPOSITORY = Path(__file__).parent.parent

ENTRY = """schema = 1
version = 3
title = "RMSNorm, one row"
summary = "Keeps the row in registers, so x is read once."
outcome = "works"
operator = "rmsnorm"
language = "triton"
entry_point = "kernel.py:run"
dtypes = ["bfloat16"]
license = "Apache-2.0"
[requires]
arch = ["sm_90"]
[source]
origin = "written here"
"""

BANNED = (
    "torch", "numpy", "pydantic", "typer", "click", "rich", "sqlmodel", "sqlalchemy", "git", "email", "asyncio",
    "tomllib", "importlib.metadata", "dataclasses", "inspect", "typing", "hashlib", "tempfile", "shutil", "chromadb",
    "transformers",
    "sentence_transformers", "onnxruntime", "mcp", "tomlkit", "kb.store", "kb.service", "kb.cli",
)  # fmt: skip

HIT_KEYS = {
    "id", "version", "title", "kind", "operator", "outcome", "score", "transfer", "evidence", "freshness", "best",
    "why", "license",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("KB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.delenv("KB_ROOT", raising=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "base" / "entries" / "kernel" / "rmsnorm" / "row"
    folder.mkdir(parents=True)
    (folder / "entry.toml").write_text(ENTRY, encoding="utf-8")
    (folder / "README.md").write_text("# Row\n\nProse.\n", encoding="utf-8")
    (folder / "kernel.py").write_text("def run(x):\n    return x\n", encoding="utf-8")
    # An entry as old as any real one; a file of this very instant could change unseen, so it is looked at again.
    for file in folder.iterdir():
        os.utime(file, (1_700_000_000, 1_700_000_000.5))
    return tmp_path / "base"


def run(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "kb", *map(str, argv)], capture_output=True, text=True, timeout=120)


def answered(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> Any:  # noqa: ANN401
    assert launch.main([*map(str, argv), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_search_prints_the_contracted_json(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answered(capsys, "search", "rms norm", "--root", root)
    assert {"query", "facets", "scope", "hits", "empty_because", "took_ms"} <= set(answer)
    assert set(answer["hits"][0]) >= HIT_KEYS
    assert answer["hits"][0]["id"] == "kernel/rmsnorm/row"
    assert answer["hits"][0]["transfer"] is None


def test_words_and_options_stand_in_any_order(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answered(capsys, "search", "rmsnorm", "--kind", "kernel", "bf16", "--root", root, "--limit=1")
    assert answer["query"] == "rmsnorm bf16"
    assert answer["scope"]["kind"] == "kernel"


def test_a_query_may_look_like_an_option_after_two_dashes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answered(capsys, "search", "--root", root, "--json", "--", "--rmsnorm")["query"] == "--rmsnorm --json"


def test_list_prints_an_array_of_entries(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = answered(capsys, "list", "--root", root)
    assert [entry["id"] for entry in entries] == ["kernel/rmsnorm/row"]
    assert answered(capsys, "list", "--root", root, "--kind", "comm") == []


def test_show_prints_facts_files_and_prose(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = answered(capsys, "show", "kernel/rmsnorm/row@3", "--root", root)
    assert shown["version"] == 3
    assert shown["facts"]["requires"]["arch"] == ["sm_90"]
    assert "kernel.py" in shown["files"]


@pytest.mark.parametrize("command", [["search", "rmsnorm"], ["show", "row"], ["list"]])
def test_stored_escapes_do_not_reach_the_terminal(
    root: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    launch.main(["list", "--root", str(root)])
    with closing(sqlite3.connect(root / ".kb/catalogue.db")) as connection:
        # Checks refuse such an entry; a catalogue could still come from elsewhere.
        connection.execute(
            "UPDATE entry SET title = ?, summary = ?, readme = ?", ("\x1b[31mred", "\x9b1m", "\x1b]0;t\x07")
        )
        connection.commit()
    capsys.readouterr()
    for extra in ([], ["--json"]):
        assert launch.main([*command, "--root", str(root), *extra]) == 0
        out = capsys.readouterr().out
        assert out
        assert not {"\x1b", "\x07", "\x9b"} & set(out)


def test_the_first_use_says_that_it_builds_the_index_and_the_second_does_not(root: Path) -> None:
    first = run("search", "rmsnorm", "--root", root)
    assert "building the index (first use): 1 entries" in first.stderr
    assert run("search", "rmsnorm", "--root", root).stderr == ""
    assert "kernel/rmsnorm/row@3" in first.stdout


def test_a_changed_entry_is_seen_at_the_next_search(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answered(capsys, "search", "rmsnorm", "--root", root)
    file = root / "entries/kernel/rmsnorm/row/entry.toml"
    file.write_text(ENTRY.replace("version = 3", "version = 4"), encoding="utf-8")
    assert answered(capsys, "search", "rmsnorm", "--root", root)["hits"][0]["version"] == 4


def test_a_removed_entry_is_gone_at_the_next_search(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answered(capsys, "search", "rmsnorm", "--root", root)
    shutil.rmtree(root / "entries/kernel/rmsnorm/row")
    assert answered(capsys, "search", "rmsnorm", "--root", root)["hits"] == []


@pytest.mark.parametrize("damage", [b"", b"not a database", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_corrupt_catalogue_heals(root: Path, capsys: pytest.CaptureFixture[str], damage: bytes) -> None:
    answered(capsys, "search", "rmsnorm", "--root", root)
    for file in (root / ".kb").glob("catalogue.db*"):
        file.write_bytes(damage) if file.suffix == ".db" else file.unlink()
    assert answered(capsys, "search", "rmsnorm", "--root", root)["hits"]


def test_damage_inside_a_catalogue_that_opens_heals(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answered(capsys, "search", "rmsnorm", "--root", root)
    with closing(sqlite3.connect(root / ".kb/catalogue.db")) as connection:
        connection.execute("DROP TABLE lexicon")
        connection.commit()
    assert answered(capsys, "search", "rmsnorm", "--root", root)["hits"]


@pytest.mark.parametrize(
    "argv",
    [
        ["search", "rmsnorm"],
        ["search", "rmsnorm", "--device", "H100"],
        ["show", "row"],
        ["list", "--device", "H100"],
        ["status"],
    ],
)
def test_facts_that_are_no_json_any_more_heal(root: Path, capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    answered(capsys, "search", "rmsnorm", "--root", root)
    with closing(sqlite3.connect(root / ".kb/catalogue.db")) as connection:
        connection.execute("UPDATE entry SET facts = replace(facts, ':', ';')")
        connection.commit()
    found = answered(capsys, *argv, "--root", root)
    if argv[0] == "list":
        assert found[0]["transfer"] == "recompile"
    else:
        assert found[{"search": "hits", "show": "facts", "status": "rows"}[argv[0]]]


@pytest.mark.parametrize("damage", ["DROP TABLE lexicon", "UPDATE entry SET facts = {}", "UPDATE meta SET value = {}"])
@pytest.mark.parametrize("argv", [["list", "--operator", "norm"], ["status"], ["search", "x", "--dtype", "half"]])
def test_a_table_that_cannot_be_read_heals(root: Path, argv: list[str], damage: str) -> None:
    launch.main(["list", "--root", str(root)])
    with closing(sqlite3.connect(root / ".kb/catalogue.db")) as connection:
        connection.execute(damage.format("CAST(x'ff' AS TEXT)"))
        connection.commit()
    assert launch.main([*argv, "--root", str(root)]) == 0


@pytest.mark.parametrize("command", ["search rmsnorm", "list", "status", "search x --kind y"])
def test_closed_streams_are_no_traceback(root: Path, command: str) -> None:
    launched = f'"{sys.executable}" -m kb {command} --root "{root}"'
    for closed, kept in ((">&-", "stderr"), ("2>&-", "stdout"), ("<&- >&- 2>&-", "neither")):
        done = subprocess.run(["sh", "-c", f"{launched} {closed}"], capture_output=True, text=True, check=False)
        assert done.returncode == (7 if "--kind" in command else 0), kept
        assert "Traceback" not in done.stderr


def test_a_terminal_may_claim_any_width(root: Path) -> None:
    environment = {**os.environ, "COLUMNS": "9" * 5_000}
    for argv in (["search", "rmsnorm"], ["status", "--device", "cpu"]):
        command = [sys.executable, "-m", "kb", *argv, "--root", str(root)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    helped = subprocess.run(
        [sys.executable, "-m", "kb", "index", "-h"], env=environment, capture_output=True, check=False
    )
    assert helped.returncode == 0


def test_an_entry_that_cannot_be_read_is_named_and_the_others_answer(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = root / "entries/kernel/rmsnorm/broken"
    broken.mkdir()
    (broken / "entry.toml").write_text("title = ", encoding="utf-8")
    assert launch.main(["search", "rmsnorm", "--root", str(root)]) == 0
    out, err = capsys.readouterr()
    assert "kernel/rmsnorm/row@3" in out
    assert "1 left out of the index; the first: entries/kernel/rmsnorm/broken/" in err


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["search"], 7, "the query is empty"),
        (["search", ""], 7, "the query is empty"),
        (["search", "x", "--kind", "kernal"], 7, "did you mean kernel"),
        (["search", "x", "--dtype", "bf61"], 7, "did you mean bfloat16"),
        (["search", "x", "--device", "H1000"], 9, "H100"),
        (["search", "x", "--arch", "sm_999"], 9, "sm_90"),
        (["search", "x", "--operatr", "y"], 2, "did you mean --operator?"),
        (["search", "x", "--limit", "many"], 2, "invalid int value"),
        (["search", "x", "--limit", "0"], 7, "expected 1 to 1000"),
        (["show", "kernel/rmsnorm/rwo"], 3, "kernel/rmsnorm/row"),
        (["show", "row@latest"], 2, "version number"),
        (["show"], 2, "required: ID"),
        (["list", "x"], 2, "unrecognized arguments"),
    ],
)
def test_a_mistake_gets_one_line_and_a_hint(
    root: Path, capsys: pytest.CaptureFixture[str], argv: list[str], code: int, said: str
) -> None:
    launch.main(["list", "--root", str(root)])
    capsys.readouterr()
    assert launch.main([*argv, "--root", str(root)]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    lines = err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["kb", "hint"]


def test_a_root_that_is_none_says_how_to_make_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main(["search", "x", "--root", str(tmp_path / "nowhere")]) == 2
    assert "hint: kb init" in capsys.readouterr().err


def test_debug_shows_the_traceback(root: Path) -> None:
    assert "Traceback" in run("search", "--debug", "x", "--kind", "nonsense", "--root", root).stderr


def test_the_version_is_printed() -> None:
    from kb import __version__

    assert run("--version").stdout == f"kb {__version__}\n"


def test_a_reader_that_goes_away_is_no_error(root: Path) -> None:
    launch_ = f"{sys.executable} -m kb show row --root '{root}' | true"
    done = subprocess.run(["bash", "-c", launch_], capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr


def test_a_full_disk_is_one_line(root: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    launch_ = f"{sys.executable} -m kb show row --root '{root}' > /dev/full"
    done = subprocess.run(["bash", "-c", launch_], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_bytes_that_are_no_text_are_a_query_like_any_other(root: Path) -> None:
    argv: list[str | bytes] = [sys.executable, "-m", "kb", "search", b"rmsnorm \xff\xfe", "--root", str(root), "--json"]
    done = subprocess.run(argv, capture_output=True, timeout=120)
    assert done.returncode == 0
    assert json.loads(done.stdout)["hits"]


@pytest.mark.parametrize("extra", [[], ["--device", "H100"], ["--json"]])
def test_the_fast_path_loads_the_standard_library_alone(root: Path, extra: list[str]) -> None:
    run("list", "--root", root)
    script = (
        "import sys; from kb.launch import main; code = main(sys.argv[1:]); "
        "print(code, *sorted(sys.modules), sep='\\n', file=sys.stderr)"
    )
    argv = [sys.executable, "-S", "-c", script, "search", "rmsnorm", "--root", str(root), *extra]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    code, *loaded = done.stderr.split()
    assert code == "0"
    assert [name for name in loaded if name in BANNED or name.startswith(tuple(f"{one}." for one in BANNED))] == []
