"""The matrix of entries and devices."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kb import hardware, launch
from kb.config import Root
from kb.errors import DeviceUnavailableError
from kb.service.status import status
from kb.store.records import Filed

WriteEntry = Callable[..., Path]
FileRecord = Callable[..., Filed]
WriteSilu = Callable[..., str]

GPU = {"name": "NVIDIA H200", "arch": "sm_90", "uuid": "GPU-1", "boot_id": "b1", "driver": "580.159.04"}
SOFTWARE = {"python": "3.12.3", "torch": "2.11.0+cu130", "triton": "3.6.0", "numpy": "2.3.1"}


def test_every_entry_stands_against_every_asked_device(root: Root, write_entry: WriteEntry) -> None:
    folder = write_entry(root.entries, "kernel/rmsnorm/needs-fp4")
    file = folder / "entry.toml"
    file.write_text(file.read_text().replace('arch = ["sm_90"]', 'arch = ["sm_100"]\nfeatures = ["fp4_mma"]'))
    write_entry(root.entries, "kernel/rmsnorm/plain")
    write_entry(root.entries, "kernel/rmsnorm/broken", facts="x =")
    matrix = status(root, ["NVIDIA B200", "NVIDIA H200"])
    assert matrix.devices == ("NVIDIA B200", "NVIDIA H200")
    assert [row.id for row in matrix.rows] == ["kernel/rmsnorm/needs-fp4", "kernel/rmsnorm/plain"]
    on_b200, on_h200 = matrix.rows[0].cells
    assert on_b200.transfer == "recompile"
    assert on_h200.transfer not in ("exact", "recompile", "retune")
    assert {cell.evidence for row in matrix.rows for cell in row.cells} == {"documented"}
    assert len(matrix.left_out) == 1


def test_without_a_device_the_whole_table_is_shown(root: Root, write_entry: WriteEntry) -> None:
    write_entry(root.entries)
    assert len(status(root).rows[0].cells) == len(hardware.devices())


def test_an_unknown_device_is_refused_with_the_nearest(root: Root) -> None:
    with pytest.raises(DeviceUnavailableError) as caught:
        status(root, ["NVIDIA H300"])
    assert "H200" in str(caught.value.hint)


def test_cells_are_those_of_the_records(
    root: Root, write_silu: WriteSilu, file_record: FileRecord, timing: dict[str, Any]
) -> None:
    for slug in ("a", "b", "c"):
        write_silu(root, slug, language="triton")
    file_record(root, "kernel/silu/a", device=GPU, software=SOFTWARE, timing=[timing])
    file_record(root, "kernel/silu/b", device=GPU, software={**SOFTWARE, "triton": "3.5.0"}, verdict="rejected")
    file_record(root, "kernel/silu/c", "2026-10-01T10:00:00Z", device=GPU, software={**SOFTWARE, "triton": "3.5.0"})
    matrix = status(root, ["NVIDIA H200", "NVIDIA B200"])
    on_h200 = [row.cells[0] for row in matrix.rows]
    assert [(cell.evidence, cell.freshness) for cell in on_h200] == [
        ("measured", "fresh"),
        ("documented", "refuted"),
        ("correct", "stale"),
    ]
    assert on_h200[0].transfer == "exact"
    assert on_h200[0].measured is not None
    assert on_h200[0].measured["speedup"] == 1.5
    assert [row.cells[1].evidence for row in matrix.rows] == ["documented"] * 3
    assert {name: count for name, count in matrix.levels["NVIDIA H200"].items() if count} == {
        "documented": 1,
        "correct": 1,
        "measured": 1,
    }
    assert sum(matrix.freshness["NVIDIA B200"].values()) == 3
    assert [(one.id[-1], one.freshness, one.reasons[0].split(" on ")[0]) for one in matrix.stale] == [
        ("b", "refuted", "rejected"),
        ("c", "stale", "triton 3.5.0 → 3.6.0"),
    ]


def test_the_command_counts_and_says_what_is_stale(
    root: Root, write_silu: WriteSilu, file_record: FileRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    file_record(root, write_silu(root), software={**SOFTWARE, "torch": "1.0.0"})
    assert launch.main(["status", "--device", "cpu", "--root", str(root.path)]) == 0
    out, err = capsys.readouterr()
    assert "recompile correct, stale" in out
    assert "cpu: 1 correct, 1 stale" in err
    assert "stale: kernel/silu/in-double on cpu, correct: torch 1.0.0 → " in err
