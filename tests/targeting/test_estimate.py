"""Estimated shares follow a roofline, add up, and say what they rest on."""

from typing import Any

import pytest

from kb.errors import DeviceUnavailableError
from kb.models.documents import Target
from kb.targeting.costs import CostModel, Work
from kb.targeting.estimate import CALL_US, COMPUTE_FRACTION, MEMORY_FRACTION, estimated, latency_us, peaks_of

ROWS = CostModel(("num_tokens",), ("bfloat16",), lambda axes, _: Work(0, 1e9 * axes["num_tokens"]))
"""A gigabyte a token."""


def specs(operator: str) -> CostModel | None:
    """Know one operator."""
    return ROWS if operator == "rmsnorm" else None


def row(operator: str, name: str, **changed: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of several types
    return {"operator": operator, "name": name, "axes": {}, "dtypes": ["bfloat16"], "calls_per_step": 1, **changed}


def target(*rows: dict[str, Any], device: str = "H200") -> Target:
    """Return a target under one and under eight streams."""
    traffic = [{"name": f"batch-{size}", "phase": "decode", "batch_size": size, "context_len": 64} for size in (1, 8)]
    return Target.model_validate(
        {
            "model": "M", "devices": [device], "device_count": 1, "precision": "x", "traffic": traffic,
            "accuracy": "none lost", "goals": [{"metric": "x", "better": "lower"}], "operators": list(rows),
        }
    )  # fmt: skip


def test_a_time_is_the_call_plus_the_roofline_of_its_work() -> None:
    made = target(row("rmsnorm", "norm"))
    peaks = peaks_of("H200")
    found = latency_us(made.operators[0], made.traffic[0], peaks, specs)
    assert found == pytest.approx(CALL_US + 1e9 / (4800e3 * MEMORY_FRACTION))
    product = target(row("batched_gemm", "p", axes={"batch": 4096, "m": 4096, "n": 4096, "k": 4096})).operators[0]
    bound = latency_us(product, made.traffic[0], peaks, specs)
    assert bound == pytest.approx(CALL_US + 2 * 4096**4 / (989.4e6 * COMPUTE_FRACTION))


def test_shares_add_up_under_each_traffic_and_follow_calls_and_batch() -> None:
    made = estimated(target(row("rmsnorm", "one"), row("rmsnorm", "three", calls_per_step=3)), specs)
    one, three = made.operators
    assert one.share == pytest.approx(0.25, abs=1e-3)
    assert three.shares == {"batch-1": pytest.approx(0.75, abs=1e-3), "batch-8": pytest.approx(0.75, abs=1e-3)}
    assert {each.share_from for each in made.operators} == {"estimated"}
    assert "4800 GB/s" in str(made.share_basis)
    Target.model_validate(made.model_dump())


def test_a_row_of_unknown_cost_or_size_has_no_share_and_that_is_said() -> None:
    odd = row("sort", "sorting", share=0.9, share_from="measured")
    sizeless = row("batched_gemm", "product", axes={"n": 4})
    made = estimated(target(row("rmsnorm", "norm"), odd, sizeless), specs)
    assert [each.share for each in made.operators] == [1.0, None, None]
    assert "2 rows of unknown size are not counted" in str(made.share_basis)


def test_the_fastest_member_of_a_family_stands_for_it_and_strangers_are_refused() -> None:
    assert peaks_of("H100").device == "NVIDIA H100 80GB HBM3"
    for name in ("cpu", "MI355X"):
        with pytest.raises(DeviceUnavailableError, match="no bandwidth"):
            peaks_of(name)
    with pytest.raises(DeviceUnavailableError, match="no device is called"):
        peaks_of("H9000")


def test_sums_over_devices_are_estimated_from_the_link() -> None:
    made = target(row("all_reduce", "sums", axes={"world_size": 8, "hidden_size": 8192}))
    small, large = (latency_us(made.operators[0], one, peaks_of("H200"), specs) for one in made.traffic)
    assert small is not None
    assert large is not None
    assert CALL_US < small < large
