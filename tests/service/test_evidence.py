"""What is proven of one entry: each cell with records, figures, reasons and the next step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kb import launch
from kb.config import Root
from kb.errors import DeviceUnavailableError, EntryNotFoundError
from kb.service.evidence import proven
from kb.store.records import Filed

FileRecord = Callable[..., Filed]
WriteSilu = Callable[..., str]
WriteEntry = Callable[..., Path]

GPU = {"name": "NVIDIA H200", "arch": "sm_90", "uuid": "GPU-1", "boot_id": "b1", "driver": "580.159.04"}
SOFTWARE = {"python": "3.12.3", "torch": "2.11.0+cu130", "triton": "3.6.0", "numpy": "2.3.1"}
CLAIM = """[[claims]]
metric = "latency_us"
value = 5.0
unit = "us"
better = "lower"
device = "NVIDIA B200"
workload = "single stream"
source = "a paper"
"""


def test_without_anything_the_next_step_is_to_validate(root: Root, write_silu: WriteSilu) -> None:
    entry = write_silu(root)
    (line,) = proven(root, "in-double").lines
    assert (line.device, line.level, line.freshness, line.records) == ("anywhere", "documented", "unknown", ())
    assert line.next_step == f"kb validate {entry}"


def test_cells_have_records_figures_toolchain_and_a_next_step(
    root: Root, write_silu: WriteSilu, file_record: FileRecord, timing: dict[str, Any]
) -> None:
    entry = write_silu(root, language="triton")
    filed = file_record(root, entry, device=GPU, software=SOFTWARE, timing=[timing])
    found = proven(root, entry)
    values, timed = found.lines
    assert (values.device, values.regime, values.level, values.freshness) == ("NVIDIA H200", None, "correct", "fresh")
    assert (timed.regime, timed.level, timed.transfer) == ("cold, eager", "measured", "exact")
    assert timed.records == (filed.path,)
    assert timed.figures[0]["interval"] == [1.45, 1.55]
    assert timed.toolchain["driver"] == "580.159"
    assert "another device of its kind: kb bundle kernel/silu/in-double -o job.pyz --timing" in str(timed.next_step)
    assert found.against["NVIDIA H200"]["triton"] == "3.6.0"


def test_where_no_record_is_published_figures_and_infeasibility_are_said(
    root: Root, write_silu: WriteSilu, write_entry: WriteEntry, file_record: FileRecord
) -> None:
    entry = write_silu(root)
    facts = root.entries / entry / "entry.toml"
    facts.write_text(facts.read_text(encoding="utf-8") + CLAIM, encoding="utf-8")
    file_record(root, entry)
    assert [(line.device, line.level) for line in proven(root, entry).lines] == [
        ("cpu", "correct"),
        ("NVIDIA B200", "reported"),
    ]
    folder = write_entry(root.entries, "kernel/rmsnorm/fp4")
    native = (
        (folder / "entry.toml").read_text().replace('arch = ["sm_90"]', 'arch = ["sm_100"]\nfeatures = ["fp4_mma"]')
    )
    (folder / "entry.toml").write_text(native, encoding="utf-8")
    (line,) = proven(root, "fp4", device="H200").lines
    assert (line.freshness, line.transfer) == ("infeasible", "technique")
    assert "fp4_mma" in line.reasons[0]
    assert "cannot run there" in str(line.next_step)


def test_what_a_later_run_replaced_needs_nothing_any_more(
    root: Root, write_silu: WriteSilu, file_record: FileRecord
) -> None:
    entry = write_silu(root, language="triton")
    file_record(root, entry, device=GPU, software=SOFTWARE)
    file_record(root, entry, "2026-11-02T10:00:00Z", device=GPU, software={**SOFTWARE, "triton": "3.7.0"})
    newer, older = proven(root, entry).lines
    assert (newer.freshness, older.freshness) == ("fresh", "stale")
    assert newer.next_step is not None
    assert older.next_step is None


@pytest.mark.parametrize(
    ("verdict", "freshness", "said"),
    [("rejected", "refuted", "mend the code"), ("needs_review", "unknown", "read the findings")],
)
def test_the_next_step_after_a_verdict_that_is_none_to_build_on(
    root: Root, write_silu: WriteSilu, file_record: FileRecord, verdict: str, freshness: str, said: str
) -> None:
    entry = write_silu(root)
    file_record(root, entry, verdict=verdict)
    (line,) = proven(root, entry).lines
    assert (line.level, line.freshness) == ("documented", freshness)
    assert said in str(line.next_step)


def test_a_withdrawn_entry_keeps_its_evidence_and_says_when_and_why(
    root: Root, write_silu: WriteSilu, file_record: FileRecord
) -> None:
    entry = write_silu(root)
    file_record(root, entry)
    facts = root.entries / entry / "entry.toml"
    text = facts.read_text(encoding="utf-8") + '[withdrawn]\ndate = 2026-12-01\nreason = "a fault in its tail"\n'
    facts.write_text(text, encoding="utf-8")
    found = proven(root, entry)
    assert found.withdrawn == "2026-12-01: a fault in its tail"
    assert [(line.level, line.freshness, line.next_step) for line in found.lines] == [("correct", "fresh", None)]


def test_unknown_names_are_refused(root: Root, write_silu: WriteSilu) -> None:
    write_silu(root)
    with pytest.raises(EntryNotFoundError):
        proven(root, "nothing")
    with pytest.raises(DeviceUnavailableError):
        proven(root, "in-double", device="H300")


def test_the_command_prints_every_cell_and_names_ignored_records(
    root: Root,
    write_silu: WriteSilu,
    file_record: FileRecord,
    timing: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    entry = write_silu(root, language="triton")
    filed = file_record(root, entry, device=GPU, software=SOFTWARE, timing=[timing])
    (root.entries / entry / "records" / "x.json").write_text("{}\n", encoding="utf-8")
    assert launch.main(["evidence", entry, "--root", str(root.path)]) == 0
    out, err = capsys.readouterr()
    assert (
        "n 4096, float32 (decode): 10 us, 1.5x [1.45, 1.55] torch.nn.functional.silu (torch 2.11.0+cu130), FAST" in out
    )
    assert f"record: entries/{filed.path}" in out
    assert "under torch 2.11.0, triton 3.6.0, cuda 13.0, driver 580.159, python 3.12, numpy 2.3" in out
    assert "ignored: kernel/silu/in-double/records/x.json" in err
