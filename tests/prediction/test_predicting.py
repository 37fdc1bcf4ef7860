"""A latency is predicted with an interval, or it is said why not."""

import math
import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kb.prediction import CASES, Ask, Measurements, Sample, Work, predict, speed_up, split_axes
from kb.prediction.carrying import carry, parts_of
from kb.prediction.constants import shipped
from kb.prediction.machine import Machine, case_of, distance, machine_of

B200, GB200, H100, H200, L40S = "NVIDIA B200", "NVIDIA GB200", "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA L40S"
DEVICES = (B200, GB200, H100, H200, L40S, "NVIDIA RTX PRO 6000 Blackwell Server Edition")
SERIES = "bfloat16 k=4096 n=16384"


def machine(name: str) -> Machine:
    found = machine_of(name)
    assert found is not None
    return found


@dataclass(frozen=True)
class Law:
    """What a made-up kernel takes: launch, traffic and arithmetic."""

    launch: float = 3.0
    memory: float = 1.4
    compute: float = 1.8

    def us(self, device: str, work: Work) -> float:
        there = machine(device)
        return self.launch + self.memory * there.memory_us(work) + self.compute * there.compute_us(work)


def work_of(m: float, *, n: float = 16384, k: float = 4096) -> Work:
    return Work(2 * m * n * k, 2 * (m * k + n * k + m * n), "bfloat16")


def sample(device: str, m: float, us: float | None = None, *, kernel: str = "tiles", series: str = SERIES) -> Sample:
    work = work_of(m)
    return Sample(device, "gemm", kernel, series, {"m": m}, work, Law().us(device, work) if us is None else us)


def ask(device: str, m: float, *, kernel: str = "tiles", series: str = SERIES) -> Ask:
    return Ask(device, "gemm", kernel, series, {"m": m}, work_of(m))


def curve(device: str, sizes: tuple[float, ...] = (1, 4, 16, 64, 256, 1024, 4096)) -> list[Sample]:
    return [sample(device, m) for m in sizes]


def test_what_was_measured_there_is_the_answer() -> None:
    found = predict(ask(H100, 64), curve(H100) + curve(B200))
    assert found.predictable
    assert found.case == "same_device"
    assert found.latency_us == pytest.approx(sample(H100, 64).latency_us)
    assert "measured on H100-SXM itself" in found.reasons


def test_a_shape_between_two_is_read_off_between_them() -> None:
    found = predict(ask(H100, 512), curve(H100))
    assert found.latency_us == pytest.approx(sample(H100, 512).latency_us, rel=0.05)
    assert found.case == "same_device"


def test_a_shape_beyond_the_largest_is_said_to_be_outside() -> None:
    found = predict(ask(H100, 16384), curve(H100))
    assert found.latency_us == pytest.approx(sample(H100, 16384).latency_us, rel=0.3)
    assert "outside of the measured shapes" in found.reasons


@pytest.mark.parametrize(
    ("source", "target", "case", "off"),
    [
        (B200, GB200, "sibling", 0.15),
        (H100, H200, "other_memory", 0.25),
        (H100, B200, "generations", 0.5),
        (B200, L40S, "generations", 0.6),
    ],
)
def test_a_time_is_carried_to_another_device(source: str, target: str, case: str, off: float) -> None:
    found = predict(ask(target, 1024), curve(source))
    assert found.case == case
    assert found.latency_us == pytest.approx(sample(target, 1024).latency_us, rel=off)
    assert found.source == machine(source).name


def test_the_nearest_device_counts() -> None:
    found = predict(ask(GB200, 64), curve(L40S) + curve(B200) + curve(H100))
    assert found.case == "sibling"
    assert found.source == "B200-HGX"


def test_measurements_on_the_target_correct_what_is_carried() -> None:
    slow = [sample(H100, m, 1.7 * sample(H100, m).latency_us) for m in (1, 64, 2048)]
    true = 1.7 * sample(H100, 512).latency_us
    without = predict(ask(H100, 512), curve(B200))
    found = predict(ask(H100, 512), curve(B200) + slow)
    assert found.case == "calibrated"
    assert found.latency_us is not None
    assert without.latency_us is not None
    assert abs(math.log(found.latency_us / true)) < abs(math.log(without.latency_us / true))
    assert found.latency_us == pytest.approx(true, rel=0.3)


def test_a_measurement_can_be_hidden_to_test_what_would_be_said_without_it() -> None:
    wrong = [*curve(H100, (1, 4, 16, 256, 1024)), sample(H100, 64, 10_000.0)]
    found = predict(ask(H100, 64), wrong, hidden=True)
    assert found.latency_us == pytest.approx(sample(H100, 64).latency_us, rel=0.3)


def test_another_kernel_is_not_predictable() -> None:
    found = predict(ask(B200, 64, kernel="persistent"), curve(H100))
    assert not found.predictable
    assert found.refusal == "other_kernel"
    assert found.latency_us is found.low_us is found.high_us is None
    assert "persistent was never measured" in found.reasons[0]
    assert found.floor_us is not None
    assert found.floor_us > 0


def test_an_unseen_shard_is_not_predictable() -> None:
    found = predict(ask(B200, 64, series="bfloat16 k=4096 n=8192"), curve(H100))
    assert found.refusal == "unseen_shard"
    assert "n=8192" in found.reasons[0]


def test_other_axes_are_another_problem() -> None:
    odd = Ask(B200, "gemm", "tiles", SERIES, {"m": 64.0, "batch": 2.0}, work_of(64))
    assert predict(odd, curve(H100)).refusal == "unseen_shard"


def test_nothing_measured_at_all() -> None:
    assert predict(ask(B200, 64), []).refusal == "other_kernel"


def test_an_unknown_device_is_named() -> None:
    found = predict(ask("NVIDIA Z9", 64), curve(H100))
    assert found.refusal == "unknown_device"
    assert "NVIDIA Z9" in found.reasons[0]
    assert found.floor_us is None


def test_a_device_whose_peaks_are_not_known() -> None:
    assert predict(ask("MI355X", 64), curve(H100)).refusal == "no_peak"
    assert predict(ask("cpu", 64), curve(H100)).refusal == "no_peak"


def test_measurements_on_unknown_devices_are_counted_and_left_out() -> None:
    known = Measurements([*curve(H100), sample(H100, 64).with_(device="NVIDIA Z9")], shipped().shape)
    assert known.unknown == {"NVIDIA Z9": 1}
    assert predict(ask(H100, 64), known).predictable


@pytest.mark.parametrize("figure", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize("field", ["flops", "moved_bytes", "m"])
def test_an_ask_that_is_no_work(figure: float, field: str) -> None:
    work = work_of(64).with_(**{field: figure}) if field != "m" else work_of(64)
    axes = {"m": figure if field == "m" else 64.0}
    found = predict(Ask(B200, "gemm", "tiles", SERIES, axes, work), curve(H100))
    assert found.refusal == "unusable_ask"
    assert field in found.reasons[0]


def test_a_call_that_moves_nothing_has_no_floor() -> None:
    nothing = Ask(B200, "gemm", "tiles", SERIES, {"m": 64.0}, Work(0, 0, "bfloat16"))
    assert predict(nothing, curve(H100)).refusal == "unusable_ask"


@pytest.mark.parametrize("us", [math.nan, math.inf, 0.0, -3.0])
def test_a_time_that_is_none_is_flagged_and_not_fitted(us: float) -> None:
    clean = predict(ask(B200, 64), curve(H100))
    found = predict(ask(B200, 64), [*curve(H100), sample(H100, 64, us)])
    assert found.latency_us == clean.latency_us
    assert [one.fault for one in found.flagged] == ["invalid"]


def test_one_measurement_is_enough() -> None:
    found = predict(ask(B200, 128), [sample(H100, 64)])
    assert found.predictable
    assert found.low_us is not None
    assert found.high_us is not None
    assert found.low_us < found.high_us


def test_only_faulty_measurements_are_none() -> None:
    found = predict(ask(B200, 64), [sample(H100, 64, math.nan)])
    assert found.refusal == "all_flagged"
    assert "not finite" in found.reasons[0]


def test_the_order_of_measurements_does_not_matter() -> None:
    measured = curve(H100) + curve(L40S) + curve(B200, (1, 64, 2048))
    expected = predict(ask(B200, 512), measured)
    for seed in range(3):
        random.Random(seed).shuffle(measured)  # noqa: S311 - not for secrets
        assert predict(ask(B200, 512), measured) == expected


SIZES = st.floats(1, 1e5)


@settings(deadline=None, max_examples=80)
@given(
    st.sampled_from(DEVICES),
    st.lists(st.tuples(st.sampled_from(DEVICES), SIZES, st.floats(1e-3, 1e7)), min_size=1, max_size=12),
    SIZES,
)
def test_whatever_was_measured_the_interval_holds_the_answer_and_stays_above_the_floor(
    target: str, measured: list[tuple[str, float, float]], m: float
) -> None:
    found = predict(ask(target, m), [sample(device, size, us) for device, size, us in measured])
    assert found.reasons
    if not found.predictable:
        assert found.refusal == "all_flagged"
        return
    assert found.case in CASES
    assert found.latency_us is not None
    assert found.low_us is not None
    assert found.high_us is not None
    assert found.floor_us is not None
    assert 0 < found.floor_us <= found.low_us <= found.latency_us < found.high_us < math.inf


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(DEVICES), st.floats(1e3, 1e12), st.floats(0, 1e15), st.floats(1.001, 100))
def test_more_bytes_never_take_less(device: str, moved: float, flops: float, more: float) -> None:
    shape = shipped().shape
    there = machine(device)
    less, longer = Work(flops, moved, "bfloat16"), Work(flops, moved * more, "bfloat16")
    assert parts_of(less, there, shape).together <= parts_of(longer, there, shape).together * (1 + 1e-12)
    assert there.floor_us(less) <= there.floor_us(longer)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(DEVICES), st.floats(1, 1e12), st.floats(0, 1e15), st.floats(0.01, 100))
def test_the_floor_scales_with_the_work(device: str, moved: float, flops: float, times: float) -> None:
    there = machine(device)
    once = there.floor_us(Work(flops, moved, "bfloat16"))
    assert there.floor_us(Work(flops * times, moved * times, "bfloat16")) == pytest.approx(once * times)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(DEVICES), SIZES, st.floats(0.5, 1e6), st.one_of(st.none(), st.floats(-2, 3)))
def test_a_time_carried_to_its_own_device_stays(device: str, m: float, us: float, slope: float | None) -> None:
    there = machine(device)
    same = carry(us, work_of(m), there, there, slope=slope, shape=shipped().shape)
    assert same.us == pytest.approx(us, rel=1e-6)
    assert same.reach == pytest.approx(0)


def test_cases_by_distance() -> None:
    assert case_of(machine(B200), machine(B200)) == "same_device"
    assert case_of(machine(B200), machine("B300")) == "sibling"
    assert case_of(machine("H100-PCIe"), machine(H100)) == "generations"
    assert case_of(machine("A100-SXM-80GB"), machine(L40S)) == "generations"


def test_axes_are_split_into_model_and_traffic() -> None:
    series, axes = split_axes({"num_tokens": 64, "hidden_size": 2048, "num_heads": 16}, "bfloat16", "cold")
    assert series == "bfloat16 cold hidden_size=2048 num_heads=16"
    assert axes == {"num_tokens": 64.0}


def test_a_speed_up_joins_two_intervals() -> None:
    fast, slow = predict(ask(H100, 64), curve(H100)), predict(ask(H100, 64), curve(B200))
    ratio = speed_up(fast, slow)
    assert ratio is not None
    assert slow.latency_us is not None
    assert fast.latency_us is not None
    assert ratio.ratio == pytest.approx(slow.latency_us / fast.latency_us)
    assert ratio.low < ratio.ratio < ratio.high
    assert slow.high_us is not None
    assert slow.low_us is not None
    assert ratio.high / ratio.low >= slow.high_us / slow.low_us * 0.999
    assert speed_up(fast, predict(ask(H100, 64, kernel="other"), curve(H100))) is None
    assert speed_up(predict(ask(H100, 64, kernel="other"), curve(H100)), fast) is None


def test_of_several_generations_the_nearest_in_peaks_speaks_alone() -> None:
    # The far one is twice as slow as its peaks say: of a kernel that is bad there and nowhere else.
    far = [sample(L40S, m, 2 * Law().us(L40S, work_of(m))) for m in (1, 16, 256, 4096)]
    for target, near in ((B200, H100), (H100, B200)):
        alone = predict(ask(target, 64), curve(near))
        both = predict(ask(target, 64), curve(near) + far)
        assert (both.latency_us, both.source) == (alone.latency_us, machine(near).name)
    chips = predict(ask(H100, 64), curve(B200) + curve(GB200) + far)
    assert chips.latency_us == pytest.approx(predict(ask(H100, 64), curve(B200) + curve(GB200)).latency_us)


def test_devices_are_as_far_apart_as_their_peaks_either_way() -> None:
    assert distance(machine(B200), machine(H100)) == distance(machine(H100), machine(B200))
    assert distance(machine(H100), machine(H100)) == 0
    assert distance(machine(H100), machine(B200)) < distance(machine(H100), machine(L40S))


def test_a_device_with_little_power_for_its_clock_is_expected_below_its_peaks() -> None:
    big, small, shape = machine(H100), machine(L40S), shipped().shape
    assert big.held_clock == 1.0
    assert big.held_memory == 1.0
    assert 0.6 < small.held_clock < 0.8
    assert small.held_memory == 15 / 16
    work = work_of(8192)
    held = parts_of(work, small, shape).compute
    assert held == pytest.approx(shape.compute * small.compute_us(work) / small.held_clock)
    assert small.floor_us(work) == small.compute_us(work)


def test_the_clock_under_load_changes_nothing_for_work_that_does_not_grow() -> None:
    work, shape = work_of(1), shipped().shape
    source, target = machine(H100), machine(L40S)
    boost = target.with_(held_clock=1.0)

    def change(slope: float) -> float:
        found = [carry(1000.0, work, source, there, slope=slope, shape=shape).us for there in (target, boost)]
        return math.log(found[0] / found[1])

    assert change(0.0) < 0.1 < change(1.0)
