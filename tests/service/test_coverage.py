"""What covers the operator rows of a target: entries, evidence, share of the floor, and what is missing."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kb import launch
from kb.config import Root, starter
from kb.errors import DeviceUnavailableError, EntryNotFoundError, StoreError
from kb.service.coverage import Coverage, coverage, page, put_page, summary, table
from kb.service.targets import target_ids
from kb.store.records import Filed

FileRecord = Callable[..., Filed]
WriteSilu = Callable[..., str]
Capture = pytest.CaptureFixture[str]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coverage.md"
COMMAND = "kb status --target {} --device H200 --report docs/coverage.md"

TARGET = """schema = 1
version = 1
title = "A small model"
summary = "Three rows, two of which something covers."
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
[[target.goals]]
metric = "latency_ms"
better = "lower"
[[target.operators]]
operator = "gelu"
name = "nobody's"
axes = {}
dtypes = ["float32"]
share = 0.1
share_from = "estimated"
[[target.operators]]
operator = "silu"
name = "gate | up"
axes = { hidden_size = 256 }
dtypes = ["float32"]
share = 0.6
share_from = "estimated"
[[target.operators]]
operator = "silu"
name = "wide"
axes = { hidden_size = 512 }
dtypes = ["float32"]
"""
GPU = {"name": "NVIDIA H200", "arch": "sm_90", "uuid": "GPU-1", "boot_id": "b1"}
SOFTWARE = {"python": "3.12.3", "torch": "2.11.0+cu130", "triton": "3.6.0", "numpy": "2.3.1"}


@pytest.fixture
def covered(root: Root, write_silu: WriteSilu) -> Root:
    """Return a knowledge base with a target of three rows and two SiLU kernels of at most 300 columns."""
    folder = root.entries / "target/small/one"
    folder.mkdir(parents=True)
    (folder / "entry.toml").write_text(TARGET, encoding="utf-8")
    (folder / "README.md").write_text("# Small\n", encoding="utf-8")
    for slug in ("a", "b"):
        write_silu(root, slug, language="triton")
    return root


def timed(
    timing: dict[str, Any], width: int, roofline: float, bound: str = "memory", tokens: int = 4096
) -> dict[str, Any]:
    one = copy.deepcopy(timing)
    one["workload"] |= {"axes": {"num_tokens": tokens, "hidden_size": width}, "note": "prompt"}
    return one | {"roofline": roofline, "bound": bound}


def of(root: Root) -> Coverage:
    (found,) = coverage(root, ["one"], "H200")
    return found


def test_rows_come_by_share_with_the_entries_that_take_their_sizes(covered: Root) -> None:
    found = of(covered)
    assert [row.name for row in found.rows] == ["gate | up", "nobody's", "wide"]
    assert [[one.id for one in row.entries] for row in found.rows] == [["kernel/silu/a", "kernel/silu/b"], [], []]
    assert [row.gap for row in found.rows] == ["not measured", "no entry", "no entry"]
    assert summary(found).endswith("3 rows, 0 measured on NVIDIA H200, 1 with two entries or more, 2 with none")


def test_the_figure_of_a_row_is_the_nearest_to_the_floor_at_its_own_sizes(
    covered: Root, file_record: FileRecord, timing: dict[str, Any]
) -> None:
    figures = [timed(timing, 256, 0.61), timed(timing, 256, 0.99, "launch", 1), timed(timing, 128, 0.9)]
    file_record(covered, "kernel/silu/a", device=GPU, software=SOFTWARE, timing=figures)
    file_record(covered, "kernel/silu/b", device=GPU, software=SOFTWARE, timing=[timed(timing, 128, 0.9)])
    first, second = of(covered).rows[0].entries
    assert (first.id, first.level, first.roofline, first.bound, first.fits) == (
        "kernel/silu/a", "measured", 0.61, "memory", True,
    )  # fmt: skip
    assert first.gap == "24 points below 85 %"
    assert (second.id, second.roofline, second.fits, second.gap) == ("kernel/silu/b", 0.9, False, "")
    assert table(of(covered))[1][5:] == ("90 % (memory, elsewhere)", "1.50×", "")


def test_a_figure_in_another_dtype_is_none_of_the_row_where_the_operator_has_both(
    covered: Root, file_record: FileRecord, timing: dict[str, Any]
) -> None:
    one = timed(timing, 256, 0.9)
    one["workload"]["dtype"] = "bfloat16"
    file_record(covered, "kernel/silu/a", device=GPU, software=SOFTWARE, timing=[one])
    assert not of(covered).rows[0].entries[0].fits
    file = covered.entries / "target/small/one/entry.toml"
    file.write_text(TARGET.replace("float32", "nvfp4"), encoding="utf-8")
    facts = covered.entries / "kernel/silu/a/entry.toml"
    facts.write_text(facts.read_text(encoding="utf-8").replace('dtypes = ["', 'dtypes = ["nvfp4", "'), encoding="utf-8")
    file_record(covered, "kernel/silu/a", device=GPU, software=SOFTWARE, timing=[one])
    assert of(covered).rows[0].entries[0].fits


@pytest.mark.parametrize(
    ("reached", "bound", "gap"),
    [
        (0.85, "memory", ""),
        (0.70, "compute", ""),
        (0.5, "compute", "20 points below 70 %"),
        (0.2, "launch", "no shape beyond launch cost"),
    ],
)
def test_the_goal_follows_what_bounds_a_kernel(
    covered: Root, file_record: FileRecord, timing: dict[str, Any], reached: float, bound: str, gap: str
) -> None:
    file_record(covered, "kernel/silu/a", device=GPU, software=SOFTWARE, timing=[timed(timing, 256, reached, bound)])
    assert of(covered).rows[0].gap == gap


def test_what_was_refuted_or_measured_elsewhere_is_no_measurement_there(
    covered: Root, file_record: FileRecord, timing: dict[str, Any]
) -> None:
    figures = [timed(timing, 256, 0.9)]
    file_record(covered, "kernel/silu/a", device=GPU, software=SOFTWARE, timing=figures)
    file_record(covered, "kernel/silu/a", "2026-11-02T10:00:00Z", device=GPU, software=SOFTWARE, verdict="rejected")
    h100 = {**GPU, "name": "NVIDIA H100 80GB HBM3"}
    file_record(covered, "kernel/silu/b", device=h100, software=SOFTWARE, timing=figures)
    assert {one.id: (one.gap, one.roofline) for one in of(covered).rows[0].entries} == {
        "kernel/silu/a": ("refuted", None),
        "kernel/silu/b": ("not measured", None),
    }


def test_a_name_cannot_break_the_table_of_the_page(covered: Root) -> None:
    text = page([of(covered)], "kb status")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 5
    assert {line.count("|") for line in rows} == {9}


def test_the_command_prints_the_table_and_writes_the_page(covered: Root, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "page.md"
    asked = ["status", "--target", "one", "--device", "H200", "--root", str(covered.path)]
    assert launch.main([*asked, "--report", str(file)]) == 0
    shown = capsys.readouterr()
    assert "kernel/silu/a" in shown.out
    assert "3 rows, 0 measured" in shown.err
    assert file.read_text(encoding="utf-8").startswith("# Coverage of the targets\n")
    assert launch.main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["rows"][1]["gap"] == "no entry"


def test_what_cannot_be_asked_is_refused(covered: Root, tmp_path: Path, capsys: Capture) -> None:
    with pytest.raises(EntryNotFoundError):
        coverage(covered, ["two"], "H200")
    with pytest.raises(DeviceUnavailableError):
        coverage(covered, ["one"], "H300")
    with pytest.raises(StoreError):
        put_page(tmp_path / "none" / "page.md", "")
    root = ["--root", str(covered.path)]
    assert launch.main(["status", "--report", str(tmp_path / "page.md"), *root]) == 2
    assert launch.main(["status", "--target", "one", "--device", "H200", "--device", "H100", *root]) == 2
    assert "one device" in capsys.readouterr().err


def test_the_page_says_what_stands_today() -> None:
    root = starter()
    targets = target_ids(root)
    command = COMMAND.format(" --target ".join(targets))
    made = page(coverage(root, targets, "H200"), command)
    assert PAGE.read_text(encoding="utf-8") == made, f"it is not up to date: {command}"
