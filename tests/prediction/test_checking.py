"""The roofline check flags what no prediction is made from."""

import pytest

from kb.prediction import Ask, Sample, Work, predict
from kb.prediction.checking import check, less_than_said
from kb.prediction.machine import Machine, machine_of

H100, L40S, B200 = "NVIDIA H100 80GB HBM3", "NVIDIA L40S", "NVIDIA B200"


def machine(name: str) -> Machine:
    found = machine_of(name)
    assert found is not None
    return found


def sample(us: float, *, moved: float = 1e9, flops: float = 0.0, device: str = L40S, m: float = 64) -> Sample:
    return Sample(device, "gemm", "tiles", "s", {"m": m}, Work(flops, moved, "bfloat16"), us)


def fault(one: Sample) -> str | None:
    usable, flagged = check([one], machine(one.device))
    assert len(usable) + len(flagged) == 1
    return flagged[0].fault if flagged else None


def test_a_time_above_the_floor_is_kept() -> None:
    assert fault(sample(1300.0)) is None


def test_a_time_that_no_memory_can_reach() -> None:
    assert fault(sample(300.0)) == "below_floor"


def test_a_time_that_no_matrix_unit_can_reach() -> None:
    assert fault(sample(300.0, moved=1e6, flops=1e12)) == "below_floor"


def test_data_that_lay_in_the_cache() -> None:
    # 67 MB of states, read and written: they fit the L2 of an L40S, and one step more does not.
    assert fault(sample(36.0, moved=134e6)) == "in_cache"
    assert fault(sample(407.0, moved=268e6)) is None


def test_peaks_are_rounded_so_a_little_below_is_no_fault() -> None:
    floor = machine(L40S).floor_us(Work(0, 1e9, "bfloat16"))
    assert fault(sample(floor * 0.985)) is None


def host_bound() -> list[Sample]:
    little = [sample(us, moved=1e6 * (1 + i), m=1 + i) for i, us in enumerate((154, 160, 171, 158, 275))]
    return [*little, sample(4000.0, moved=3e9, m=4096)]


def test_the_same_long_time_for_next_to_nothing_is_the_host() -> None:
    usable, flagged = check(host_bound(), machine(L40S))
    assert [one.fault for one in flagged] == ["host_cost"] * 5
    assert [one.latency_us for one in usable] == [4000.0]


def test_short_kernels_of_little_work_are_kernels() -> None:
    quick = [sample(us, moved=1e6 * (1 + i), m=1 + i) for i, us in enumerate((7, 8, 9, 11))]
    assert check(quick, machine(L40S))[1] == []


def test_two_times_make_no_plateau() -> None:
    assert check(host_bound()[:2], machine(L40S))[1] == []


def test_several_times_below_the_floor_mean_that_the_kernel_does_less() -> None:
    impossible = [sample(300.0, m=m) for m in (1, 2, 3)]
    assert less_than_said(check(impossible[:2], machine(L40S))[1]) is None
    assert "does less" in (less_than_said(check(impossible, machine(L40S))[1]) or "")


def test_none_of_its_times_count_then_on_any_device() -> None:
    measured = [sample(300.0, m=m) for m in (1, 2, 3)] + [sample(2000.0, device=H100, m=64)]
    found = predict(Ask(B200, "gemm", "tiles", "s", {"m": 64}, Work(0, 1e9, "bfloat16")), measured)
    assert found.refusal == "all_flagged"
    assert len(found.flagged) == 4


@pytest.mark.parametrize("axes", [{}, {"m": float("nan")}, {"m": -1.0}])
def test_axes_that_are_no_sizes(axes: dict[str, float]) -> None:
    odd = sample(2000.0).with_(axes=axes)
    assert fault(odd) == ("invalid" if axes else None)
