"""Floors, peaks and telemetry: what a machine can do at best, and what it is seen to do."""

import json
from typing import Any

import pytest

from kb.validators import operators
from kb.validators.operators.spec import Cost, Workload
from kb.validators.runtime import peaks, telemetry
from kb.validators.runtime.floors import floor_of, operand_dtype, rate_tflops
from kb.validators.runtime.telemetry import Telemetry

H200: dict[str, Any] = {
    "copy_gbps": 4200.0, "read_gbps": 4260.0, "l2_gbps": 9000.0,
    "matmul_tflops": {"bfloat16": 796.0, "float32": 50.0, "float8_e4m3fn": 1490.0}, "launch_us": 10.0, "node_us": 0.9,
    "l2_bytes": 60 << 20,
}  # fmt: skip
"""As measured on one."""

DATA_SHEET = {"mem_gbps": 4800.0, "l2_bytes": 50 << 20, "tflops": {"bfloat16": 989.0, "float8_e4m3fn": 1979.0}}


def floor(cost: Cost, dtype: str = "bfloat16", **changes: Any) -> Any:  # noqa: ANN401 - keyword arguments
    given: dict[str, Any] = {"cache": "cold", "launch": "graph", "peaks": H200, "kind": "cuda"}
    return floor_of(cost, dtype=dtype, **(given | changes))


def test_the_larger_of_memory_and_arithmetic_bounds_a_call_and_is_named() -> None:
    copy = floor(Cost(flops=0, essential_bytes=426_000_000))
    assert (round(copy.us), copy.bound) == (100, "memory")
    product = floor(Cost(flops=79_600_000_000, essential_bytes=1000))
    assert (round(product.us), product.bound) == (100, "compute")
    small = floor(Cost(flops=10, essential_bytes=1000))
    assert (small.us, small.bound) == (0.9, "launch")
    assert floor(Cost(flops=10, essential_bytes=1000), launch="eager").us == 10.0


def test_a_warm_set_that_fits_is_held_against_the_cache_and_a_large_one_is_not() -> None:
    fits, large = (Cost(flops=0, essential_bytes=size) for size in (8 << 20, 600 << 20))
    assert floor(fits, cache="warm").us < floor(fits).us / 2
    assert floor(large, cache="warm").us == floor(large).us


def test_what_stays_in_the_cache_at_the_end_of_a_batch_counts_for_what_is_believed_alone() -> None:
    cost = Cost(flops=0, essential_bytes=40 << 20)
    assert floor(cost, resident_bytes=30 << 20).us == floor(cost).us
    assert floor(cost, resident_bytes=30 << 20).hard_us == pytest.approx(floor(cost).hard_us / 4)
    assert floor(cost, resident_bytes=80 << 20).hard_us == 0.0


def test_products_of_four_bits_may_be_behind_narrow_formats_and_do_not_raise_the_roofline() -> None:
    cost = Cost(flops=149_000_000_000, essential_bytes=1000)
    narrow = floor(cost, dtype="float8_e4m3fn")
    assert narrow.us == pytest.approx(100.0)
    assert narrow.hard_us == pytest.approx(50.0 / 1.15)


def test_nothing_undercuts_a_data_sheet_and_a_measured_peak_leaves_some_room() -> None:
    cost = Cost(flops=0, essential_bytes=480_000_000)
    plain = floor(cost)
    assert plain.hard_us == pytest.approx(plain.us / 1.15)
    assert floor(cost, ceilings={"mem_gbps": 4400.0}).hard_us == pytest.approx(480 / 4.4)
    assert floor(cost, ceilings={"mem_gbps": 4400.0}, cache="warm").hard_us == plain.hard_us


def test_rates_are_those_of_the_best_way_to_a_result_of_that_precision() -> None:
    assert rate_tflops(H200, "bfloat16") == 796.0
    assert rate_tflops(H200, "float32") == pytest.approx(796 / 3)  # three products of bfloat16
    assert rate_tflops(H200, "uint8") == 1490.0
    assert rate_tflops({"matmul_tflops": {"float32": 0.1}}, "bfloat16") == 0.1


def test_the_machine_that_was_claimed_is_plausible_and_another_is_not() -> None:
    assert peaks.plausible(H200, DATA_SHEET) == []
    faster = {**DATA_SHEET, "mem_gbps": 8000.0 * 1.5, "tflops": {"bfloat16": 2500.0}}
    assert len(peaks.plausible(H200, faster)) == 2
    slower = {"mem_gbps": 2039.0, "l2_bytes": 40 << 20, "tflops": {"bfloat16": 312.0}}
    assert [one.partition(":")[0] for one in peaks.plausible(H200, slower)] == ["copy_gbps", "bfloat16 products"]
    assert any("cache" in one for one in peaks.plausible(H200, {"l2_bytes": 126 << 20}))
    assert peaks.plausible(H200, {}) == []


def test_the_peaks_of_this_host_are_measured_in_a_process_of_their_own() -> None:
    found = peaks.measure("cpu")
    assert json.loads(json.dumps(found)) == found
    assert 0.05 < found["copy_gbps"] < 10_000
    assert found["matmul_tflops"]["float32"] > 0
    assert found["launch_us"] > 0
    assert found["l2_bytes"] == peaks.cache_bytes()
    assert set(peaks.for_record(found)) == {"copy_gbps", "matmul_tflops", "launch_us", "l2_bytes"}
    assert peaks.plausible(found, DATA_SHEET)


def test_where_there_is_no_gpu_nothing_is_said_of_one() -> None:
    seen = Telemetry(None)
    assert not seen.present
    assert (seen.read(), seen.default_mhz(), seen.others(frozenset())) == (None, None, None)
    assert not Telemetry("GPU-00000000-0000-0000-0000-000000000000").present


def test_the_worst_of_several_readings_has_the_lowest_clock_and_every_reason() -> None:
    row = {"sm_mhz": 1980.0, "mem_mhz": 3201.0, "power_w": 300.0, "temperature_c": 50.0, "throttle": ["power_cap"]}
    hot = {**row, "sm_mhz": 1500.0, "power_w": 700.0, "temperature_c": None, "throttle": ["thermal"]}
    assert telemetry.worst([None, row, hot]) == {
        "sm_mhz": 1500.0, "mem_mhz": 3201.0, "power_w": 700.0, "temperature_c": 50.0,
        "throttle": ["power_cap", "thermal"],
    }  # fmt: skip
    assert telemetry.worst([None]) is None


def test_products_of_narrow_operands_are_not_held_to_the_rate_of_their_result() -> None:
    def asked(name: str, **axes: int) -> str:
        spec = operators.load(name)
        return operand_dtype(spec, Workload(axes, spec.dtypes[0]))

    assert asked("gemm_fp8") == "float8_e4m3fn"
    assert asked("gemm") == operators.load("gemm").dtypes[0]
    assert asked("moe_grouped_gemm_nvfp4", activation_bits=16) == "bfloat16"
    assert asked("moe_grouped_gemm_nvfp4", activation_bits=4) == "uint8"
