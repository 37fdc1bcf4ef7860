"""``kb eval`` prints what was measured, and errors in one line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kb import launch
from kb.config import Root

Capture = pytest.CaptureFixture[str]
WriteEntry = Callable[..., Path]
ROW = "kernel/rmsnorm/row-per-cta"


@pytest.fixture
def base(root: Root, write_entry: WriteEntry) -> Root:
    write_entry(root.entries, ROW)
    write_entry(root.entries, "kernel/layernorm/two-moment")
    return root


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    file = tmp_path / "queries.jsonl"
    lines = [
        {"query": "rms norm", "relevant": {ROW: 3}, "half": "tune"},
        {"query": "layer norm", "relevant": {"kernel/layernorm/two-moment": 3, ROW: 1}, "half": "test"},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def test_a_table_of_tiers_and_of_differences(base: Root, queries: Path, capsys: Capture) -> None:
    assert launch.main(["eval", str(queries), "--against", "fts", "--root", str(base.path)]) == 0
    captured = capsys.readouterr()
    for said in ("nDCG@10", "MRR@10", "recall@5", "hit@1", "p50 ms", "p95 ms", "bare", "fts", "against fts"):
        assert said in captured.out
    assert "2 queries (all), 0 made-up entries" in captured.err


def test_several_files_are_measured_together(base: Root, queries: Path, tmp_path: Path, capsys: Capture) -> None:
    more = tmp_path / "more.jsonl"
    more.write_text(json.dumps({"query": "norm", "relevant": {ROW: 2}, "half": "tune"}) + "\n", encoding="utf-8")
    argv = ["eval", str(queries), str(more), "--tier", "bare", "--half", "tune", "--json", "--root", str(base.path)]
    assert launch.main(argv) == 0
    assert json.loads(capsys.readouterr().out)["queries"] == 2


def test_json_for_scripts(base: Root, queries: Path, capsys: Capture) -> None:
    argv = ["eval", str(queries), "--tier", "bare", "--against", "fts", "--half", "test", "--distractors", "30"]
    assert launch.main([*argv, "--json", "--root", str(base.path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {key: found[key] for key in ("queries", "half", "distractors")} == {
        "queries": 1,
        "half": "test",
        "distractors": 30,
    }
    bare, fts = found["tiers"]
    assert (bare["tier"], fts["tier"]) == ("bare", "fts")
    assert bare["hit_at_1"] == 1.0
    assert set(bare["latency_ms"]) == {"p50", "p95"}
    assert bare["against"]["tier"] == "fts"
    assert bare["against"]["ndcg_at_10"]["low"] <= bare["against"]["ndcg_at_10"]["high"]
    assert "against" not in fts


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--tier", "best"], 2, "no tier is called 'best'"),
        (["--half", "both"], 2, "no half is called 'both'"),
        (["--distractors", "-3"], 2, "-3 distractors"),
    ],
)
def test_usage_errors_are_one_line(
    base: Root, queries: Path, capsys: Capture, options: list[str], code: int, said: str
) -> None:
    assert launch.main(["eval", str(queries), *options, "--root", str(base.path)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert len(captured.err.splitlines()) == 2


def test_a_malformed_line_is_named(base: Root, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text('{"query": "x", "relevant": {"kernel/a/b": 9}}\n', encoding="utf-8")
    assert launch.main(["eval", str(file), "--root", str(base.path)]) == 4
    assert f"{file}, line 1: relevant.kernel/a/b: expected a grade from 0 to 3, found 9" in capsys.readouterr().err
