"""Seeding from the shell: tables, JSON, packs, outcomes, uplift; errors in one line with their exit code."""

import json
from pathlib import Path

import pytest

from kb import launch
from kb.cli import completing
from kb.config import Root

Capture = pytest.CaptureFixture[str]

TARGET = """schema = 1
version = 1
title = "A small model"
summary = "One operator that is known and one that is not."
outcome = "works"
license = "Apache-2.0"
[source]
origin = "written here"
[target]
model = "small"
devices = ["NVIDIA H200"]
device_count = 1
precision = "bfloat16"
accuracy = "No loss."
[[target.traffic]]
name = "one"
phase = "decode"
[[target.goals]]
metric = "latency_ms"
better = "lower"
[[target.operators]]
operator = "rmsnorm"
name = "norm"
axes = { hidden_size = 2048 }
dtypes = ["bfloat16"]
share = 0.4
share_from = "estimated"
[[target.operators]]
operator = "softmax"
name = "scores"
axes = { hidden_size = 2048 }
dtypes = ["bfloat16"]
share = 0.1
share_from = "estimated"
"""

ENTRY = "kernel/rmsnorm/row-per-cta"
SMALL = "target/small/h200"


@pytest.fixture
def base(root: Root, write_entry: object) -> Root:
    write_entry(root.entries)  # type: ignore[operator]
    folder = root.entries / SMALL
    folder.mkdir(parents=True)
    (folder / "entry.toml").write_text(TARGET, encoding="utf-8")
    (folder / "README.md").write_text("# Small\n", encoding="utf-8")
    return root


def call(capsys: Capture, *argv: str | Path) -> tuple[int, str, str]:
    code = launch.main([str(one) for one in argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_plan_is_a_table_with_gaps_and_notes(base: Root, capsys: Capture) -> None:
    code, out, err = call(capsys, "seed", SMALL, "--root", base.path)
    assert (code, err) == (0, "")
    assert "kernel/rmsnorm/row-per-cta" in out
    assert "gap: scores (softmax, 10.0% of the time): no entry computes softmax; start from nothing near" in out
    assert "note: shares of time are estimated, not measured" in out


def test_a_plan_is_json_and_a_pack(base: Root, tmp_path: Path, capsys: Capture) -> None:
    code, out, err = call(capsys, "seed", "h200", "--root", base.path, "--json", "-o", tmp_path / "pack")
    assert code == 0
    plan = json.loads(out)
    assert [row["id"] for row in plan["rows"]] == [ENTRY]
    assert (tmp_path / "pack" / "SEED.md").is_file()
    assert "give SEED.md to the agent" in err


def test_an_outcome_is_stored_and_counted(base: Root, capsys: Capture) -> None:
    asked = ("outcome", ENTRY, "--target", SMALL, "--result", "lost", "--note", "slower", "--root", base.path)
    code, out, _ = call(capsys, *asked)
    assert (code, out.splitlines()[0]) == (0, f"{ENTRY}@1 on {SMALL}: lost")
    assert "reported before" in call(capsys, *asked)[1]
    code, out, _ = call(capsys, "eval", "uplift", "--root", base.path, "--json")
    assert code == 0
    assert json.loads(out)["groups"][0] | {"harm_low": 0, "harm_high": 0} == {
        "name": "all", "reported": 1, "tried": 1, "won": 0, "neutral": 0, "lost": 1, "harm_rate": 1.0,
        "harm_low": 0, "harm_high": 0, "measured": 0, "gain": None,
    }  # fmt: skip
    assert "100% [21%, 100%]" in call(capsys, "eval", "uplift", "--root", base.path)[1]


def test_without_outcomes_uplift_says_how_to_report_one(base: Root, capsys: Capture) -> None:
    assert "no outcomes were reported yet" in call(capsys, "eval", "uplift", "--root", base.path)[1]


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (("seed", "target/none/x"), 3, "no entry has the id"),
        (("seed", ENTRY), 2, "is no target"),
        (("seed", SMALL, "--budget", "3"), 2, "expected a budget"),
        (("seed", SMALL, "--device", "Acme"), 9, "no device is called 'Acme'"),
        (("outcome", ENTRY, "--target", SMALL, "--result", "won"), 13, "won needs a record"),
        (("outcome", ENTRY, "--target", SMALL, "--result", "good"), 2, "no result is called 'good'"),
        (("eval", "uplift", "--target", "target/none/x"), 3, "no target has the id"),
    ],
)
def test_errors_are_one_line_with_their_code(
    base: Root, capsys: Capture, argv: tuple[str, ...], code: int, said: str
) -> None:
    got, out, err = call(capsys, *argv, "--root", base.path)
    assert (got, out) == (code, "")
    assert said in err
    assert "Traceback" not in err


def test_shells_complete_targets_entries_and_words(base: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KB_ROOT", str(base.path))
    assert completing.target_ids("tar") == [SMALL]
    assert completing.entry_ids("") == [ENTRY]
    assert completing.results("n") == ["neutral", "not_applied"]
    assert completing.uses("c") == ["commercial"]
    assert "H200-SXM" in completing.devices("h2")
    monkeypatch.setenv("KB_ROOT", "/nowhere")
    assert completing.entry_ids("") == []
