"""The judge's records go out as FlashInfer traces: the same figures, on the same shapes, and what has no word there."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kb.config import Root, find_root
from kb.importers.flashinfer_schema import row_fault
from kb.service import exporting, importing
from kb.service.flashinfer_records import trace_rows
from kb.service.initialising import init
from kb.service.validating import all_records, validate
from kb.store import files, layout
from kb.validators import operators
from tests.service.timed import H100, file_timed

ID = "kernel/silu/in-double"
KERNEL = """import torch


def run(x):
    return (x.double() / (1 + torch.exp(-x.double()))).to(x.dtype)
"""
FACTS = """schema = 1
version = 1
title = "SiLU in double"
summary = "The formula, once, in float64."
outcome = "works"
operator = "silu"
language = "torch"
entry_point = "kernel.py:run"
dtypes = ["float32"]
license = "MIT"
[limits]
num_tokens = { max = 1000 }
[requires]
arch = ["cpu"]
[source]
origin = "written here"
"""
SHAPES = tuple(
    dict(one.axes)
    for one in operators.load("silu").workloads
    if (one.dtype, one.law, one.use) == ("float32", "normal", "awkward") and all(one.axes.values())
)[:2]
DEFINITION, SOLUTION = "kb_silu_float32", "kernel-silu-in-double-v1-float32"


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    """Validate one entry for real, and file records with times beside that one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KB_CONFIG_DIR", str(tmp_path_factory.mktemp("settings")))
        root = Root(tmp_path_factory.mktemp("base"))
        folder = root.entries / ID
        folder.mkdir(parents=True)
        (folder / "entry.toml").write_text(FACTS, encoding="utf-8")
        (folder / "README.md").write_text("# SiLU\n", encoding="utf-8")
        (folder / "kernel.py").write_text(KERNEL, encoding="utf-8")
        (done,) = validate(root, [ID])
        assert (done.verdict, done.note) == ("accepted", None)
        (values,) = all_records(root.entries)
        for axes in SHAPES:
            file_timed(root, ID, values.raw, gain=1.5, axes=axes, device=H100)
        yield root


def _raw(root: Root) -> dict[str, Any]:
    return next(one.raw for one in all_records(root.entries) if one.raw["timing"])


def _rows(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in place.read_text().splitlines()]


def test_every_timing_that_counts_is_a_trace_with_the_figures_of_its_record(judged: Root, tmp_path: Path) -> None:
    made = exporting.export(judged, "flashinfer-trace", [ID], tmp_path / "out")
    assert f"traces/silu/{SOLUTION}.jsonl" in made.files
    rows = _rows(tmp_path / "out" / f"traces/silu/{SOLUTION}.jsonl")
    raw = _raw(judged)
    known = {round(one["candidate_us"]["median"] / 1000, 12) for one in raw["timing"]}
    assert len(rows) == len(SHAPES) == 2
    for row in rows:
        assert row_fault(row) is None
        assert (row["definition"], row["solution"]) == (DEFINITION, SOLUTION)
        found = row["evaluation"]
        assert round(found["performance"]["latency_ms"], 12) in known
        assert (found["performance"]["reference_latency_ms"], found["performance"]["speedup_factor"]) == (0, 0)
        assert found["environment"] == {"hardware": raw["device"]["name"], "libs": raw["software"]}
        assert found["correctness"]["max_absolute_error"] == "NaN"
        assert found["correctness"]["extra"]["kb_record"].startswith(f"{ID}/records/")
        assert found["correctness"]["extra"]["kb_ratio"] == pytest.approx(1.5, rel=0.1)
        baseline = found["correctness"]["extra"]["kb_baseline_latency_ms"]
        assert baseline / found["performance"]["latency_ms"] == pytest.approx(1.5, rel=0.1)
    workloads = _rows(tmp_path / "out" / f"workloads/silu/{DEFINITION}.jsonl")
    shared = {one["workload"]["uuid"] for one in workloads} & {one["workload"]["uuid"] for one in rows}
    assert shared  # what was timed are shapes of the data set


def test_traces_come_back_as_reported_figures_and_stay_the_same_from_then_on(judged: Root, tmp_path: Path) -> None:
    exporting.export(judged, "flashinfer-trace", [ID], tmp_path / "out")
    found = []
    for home, source in (("one", tmp_path / "out"), ("two", tmp_path / "again")):
        init(tmp_path / home)
        root = find_root(str(tmp_path / home))
        options = importing.options_of(
            format_=None, write=True, stated=(None, None, None), allow=[], device=None, toolchain=[]
        )
        report = importing.run(root, str(source), options)
        assert not report.counts["refused"]
        assert [line.evidence for line in report.lines if "trace-kb" in str(line.id)] == ["reported"]
        ids = list(layout.entry_ids(root.entries))
        found.append({one: files.read(layout.folder_of(root.entries, one), one).digest for one in ids})
        if home == "one":
            exporting.export(root, "flashinfer-trace", [], tmp_path / "again")
    assert found[0] == found[1]


def test_no_trace_of_what_counts_for_nothing_or_has_other_inputs(judged: Root) -> None:
    def made(raw: dict[str, Any]) -> list[dict[str, Any]]:
        def workload_of(axes: Any) -> dict[str, Any]:  # noqa: ANN401 - axes
            return {"uuid": json.dumps(axes, sort_keys=True), "axes": axes, "inputs": {}}

        given = [("record", raw)]
        return list(
            trace_rows(given, dtype="float32", definition=DEFINITION, solution=SOLUTION, workload_of=workload_of)
        )

    raw = _raw(judged)
    whole = made(raw)
    assert whole
    for field, value in (("quarantined", "clocks disagree"), ("law", "ties"), ("dtype", "float16")):
        changed = copy.deepcopy(raw)
        for one in changed["timing"]:
            (one if field in one else one["workload"])[field] = value
        assert made(changed) == []
    assert (
        list(trace_rows([("r", raw)], dtype="float32", definition="d", solution="s", workload_of=lambda _axes: None))
        == []
    )


def test_records_of_another_version_are_none_of_this_one(judged: Root, tmp_path: Path) -> None:
    place = judged.entries / ID / "entry.toml"
    place.write_text(FACTS.replace("version = 1", "version = 2").replace("once", "one time"), encoding="utf-8")
    try:
        made = exporting.export(judged, "flashinfer-trace", [ID], tmp_path / "out")
    finally:
        place.write_text(FACTS, encoding="utf-8")
    assert not [one for one in made.files if one.startswith("traces/")]
    assert [one.reason for one in made.left_out] == ["3 records of other versions: no traces of this one"]
