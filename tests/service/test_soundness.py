"""A machine that is not what it is said to be is found out by what it says elsewhere and by what it can do."""

import json
from pathlib import Path
from typing import Any

import pytest

from kb import hardware
from kb.models.record import Record
from kb.service import ceilings
from kb.service.soundness import device_faults, plan_faults
from kb.validators import operators
from kb.validators.runtime import plan

RECORDS = Path(__file__).parents[2] / "entries/kernel/rmsnorm/row-per-cta/records"

H200: dict[str, Any] = {
    "name": "NVIDIA H200", "arch": "sm_90", "capability": "9.0", "sms": 132, "memory_bytes": 150_754_820_096,
    "peaks": {
        "copy_gbps": 4300.0, "matmul_tflops": {"bfloat16": 790.0, "float32": 51.0}, "launch_us": 6.0,
        "l2_bytes": 60 << 20,
    },
}  # fmt: skip


def faults(**changes: Any) -> list[str]:  # noqa: ANN401 - plain JSON
    return list(device_faults(H200 | changes))


def peaks(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - plain JSON
    return {**H200["peaks"], **changes}


def test_a_machine_that_is_what_it_says_has_no_fault() -> None:
    assert faults() == []
    assert faults(peaks=None) == []
    assert faults(name="a device that nobody knows yet") == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "NVIDIA B200"}, "is sm_100, not sm_90"),
        ({"name": "NVIDIA B200", "arch": "sm_100"}, "its driver says 9.0"),
        ({"name": "NVIDIA B200", "arch": "sm_100", "capability": "10.0"}, "SMs, not 132"),
        ({"name": "NVIDIA B200", "arch": "sm_100", "capability": "10.0", "sms": 148}, "GB, not 151"),
        (
            {"name": "NVIDIA B200", "arch": "sm_100", "capability": "10.0", "sms": 148, "memory_bytes": 192 * 10**9,
             "peaks": {"copy_gbps": 3600.0, "matmul_tflops": {"bfloat16": 700.0}}},
            "measured, far less than",
        ),
        ({"peaks": {"copy_gbps": 8000.0, "matmul_tflops": {}}}, "more than the 4800"),
        ({"peaks": {"copy_gbps": 4300.0, "matmul_tflops": {"bfloat16": 2000.0}}}, "more than the 989"),
        ({"sms": 16}, "has 132 SMs"),
    ],
)  # fmt: skip
def test_a_claim_of_other_hardware_fails(changes: dict[str, Any], said: str) -> None:
    assert any(said in one for one in faults(**changes)), faults(**changes)


def test_a_cpu_is_a_cpu() -> None:
    assert faults(name="cpu", arch="cpu") == []
    assert faults(name="NVIDIA H200", arch="cpu") == ["a cpu is not called NVIDIA H200"]


def test_ceilings_are_those_of_the_table() -> None:
    found = ceilings.of_device("NVIDIA H200")
    assert found["float32"]["mem_gbps"] == 4800
    assert found["bfloat16"]["tflops"] > 1900
    assert found["float32"]["tflops"] < 400
    assert ceilings.of_device("no such device") == {}
    gpus = {name for device in hardware.devices() if device.arch != "cpu" for name in device.device_names}
    assert set(ceilings.by_device()) == gpus


def test_the_plan_of_a_quick_timing_is_found_among_those_with_one_workload_of_the_target() -> None:
    quick = [json.loads(path.read_bytes()) for path in sorted(RECORDS.glob("*-sm_90-*.json"))]
    record = Record.model_validate(next(one for one in quick if one["plan"]["uses"] == ["awkward", "target"]))
    workloads = [one for one in operators.load("rmsnorm").workloads if one.dtype in {"bfloat16", "float16", "float32"}]
    judged = {json.dumps(one.axes, sort_keys=True) for one in record.cases}
    assert sum(json.dumps(dict(one.axes), sort_keys=True) in judged for one in workloads if one.use == "target") == 1
    assert list(plan_faults(record, workloads)) == []
    one_less = [one for one in workloads if one.use == "target"] + [one for one in workloads if one.use != "target"][1:]
    assert list(plan_faults(record, one_less)) == ["its seed does not give its plan"]
    another = record.model_copy(update={"master_seed": "1"})
    assert list(plan_faults(another, workloads)) == ["its seed does not give its plan"]


def test_the_plan_of_a_timing_of_several_shapes_is_found_among_those_with_as_many() -> None:
    paths = sorted(RECORDS.glob("*-sm_90-*.json"))
    record = next(one for one in map(Record.model_validate_json, map(Path.read_bytes, paths)) if one.timing)
    workloads = [one for one in operators.load("rmsnorm").workloads if one.dtype in {"bfloat16", "float16", "float32"}]
    targets = [one for one in workloads if one.use == "target"]
    few = [one for one in workloads if one.use != "target" or one in (targets[0], targets[-1])]
    low, high = record.plan.calls
    drawn = plan.draw("rmsnorm", few, master_seed=int(str(record.master_seed), 16), calls=(low, high))
    cases = tuple(
        record.cases[0].model_copy(
            update={
                "axes": dict(drawn.workloads[case.workload].axes),
                "dtype": drawn.workloads[case.workload].dtype,
                "law": drawn.workloads[case.workload].law,
                "contents": case.contents,
            }
        )
        for case in drawn.cases
    )
    made = record.model_copy(update={"plan_sha256": drawn.sha256, "cases": cases})
    assert list(plan_faults(made, workloads)) == []
    assert list(plan_faults(made, few[1:])) == ["its seed does not give its plan"]
