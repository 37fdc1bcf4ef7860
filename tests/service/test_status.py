"""The matrix of entries and devices."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kb import hardware
from kb.config import Root
from kb.errors import DeviceUnavailableError
from kb.service.status import status

WriteEntry = Callable[..., Path]


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
