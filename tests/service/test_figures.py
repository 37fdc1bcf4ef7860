"""Figures come from verified records alone, with their axes and floors; published ones stand apart."""

from collections.abc import Callable
from typing import Any

from kb.config import Root
from kb.service.figures import figures_of
from kb.service.searching import show_root
from kb.store.records import Filed

FileRecord = Callable[..., Filed]
WriteSilu = Callable[..., str]

GPU = {
    "name": "NVIDIA H200", "arch": "sm_90", "uuid": "GPU-1", "boot_id": "b1", "driver": "580.159.04",
    "peaks": {"copy_gbps": 4000.0, "matmul_tflops": {"bfloat16": 700.0}, "launch_us": 2.0, "l2_bytes": None},
}  # fmt: skip
SOFTWARE = {"python": "3.12.3", "torch": "2.11.0+cu130", "triton": "3.6.0", "numpy": "2.3.1"}


def test_a_timing_has_axes_times_floor_and_the_record_it_is_from(
    root: Root, write_silu: WriteSilu, file_record: FileRecord, timing: dict[str, Any]
) -> None:
    entry = write_silu(root, language="triton")
    work = [{"workload": timing["workload"], "flops": 5 * 4096, "essential_bytes": 8 * 4096}]
    filed = file_record(root, entry, device=GPU, software=SOFTWARE, timing=[timing], roofline=work)
    found = figures_of(root, show_root(root, entry))
    (one,) = found["timings"]
    assert (one["axes"], one["dtype"], one["device"]) == ({"n": 4096}, "float32", "NVIDIA H200")
    assert (one["median_us"], one["baseline_us"], one["floor_us"], one["roofline"]) == (10.0, 15.0, 7.0, 0.7)
    assert (one["flops"], one["essential_bytes"], one["record"]) == (20_480, 32_768, filed.path)
    assert found["peaks"]["NVIDIA H200"]["copy_gbps"] == 4000.0
    assert found["unread"] == []


def test_without_records_there_are_no_timings(root: Root, write_silu: WriteSilu) -> None:
    found = figures_of(root, show_root(root, write_silu(root)))
    assert (found["timings"], found["peaks"], found["claims"]) == ([], {}, [])


def test_an_edited_record_counts_for_nothing(
    root: Root, write_silu: WriteSilu, file_record: FileRecord, timing: dict[str, Any]
) -> None:
    entry = write_silu(root, language="triton")
    filed = file_record(root, entry, device=GPU, software=SOFTWARE, timing=[timing])
    path = root.entries / filed.path
    path.write_text(path.read_text(encoding="utf-8").replace('"median": 10.0', '"median": 1.0'), encoding="utf-8")
    assert figures_of(root, show_root(root, entry))["timings"] == []


def test_a_record_that_goes_away_in_between_is_said(
    root: Root, write_silu: WriteSilu, file_record: FileRecord, timing: dict[str, Any]
) -> None:
    entry = write_silu(root, language="triton")
    filed = file_record(root, entry, device=GPU, software=SOFTWARE, timing=[timing])
    found = show_root(root, entry)
    (root.entries / filed.path).unlink()
    assert len(figures_of(root, found)["unread"]) == 1
