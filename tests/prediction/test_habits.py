"""A time from a device with little shared memory is drawn to what its family is used to, and no other time is."""

import math

import pytest

from kb.prediction import Ask, Sample, Work, predict
from kb.prediction.carrying import Carried
from kb.prediction.constants import Constants, Habit, shipped
from kb.prediction.estimating import drawn
from kb.prediction.machine import Machine, machine_of, room

B200, H100, L40S = "NVIDIA B200", "NVIDIA H100 80GB HBM3", "NVIDIA L40S"
WORK = Work(2 * 512 * 4096 * 4096, 2 * (512 * 4096 * 2 + 4096 * 4096), "bfloat16")


def machine(name: str) -> Machine:
    found = machine_of(name)
    assert found is not None
    return found


def with_habit(scatter: float) -> Constants:
    return shipped().with_(habits={"gemm": (Habit(0.0, 0.2, scatter), Habit(6.0, 0.2, scatter))})


def moved(source: str, target: str, us: float, *, scatter: float = 0.1, family: str = "gemm") -> float:
    said = Carried(us, 0.1, 1.0)
    return drawn(said, WORK, machine(source), machine(target), family=family, constants=with_habit(scatter)).us


def test_room_is_what_the_target_has_more() -> None:
    assert room(machine(L40S), machine(H100)) == pytest.approx(math.log(228 / 100))
    assert room(machine(H100), machine(L40S)) == 0
    assert room(machine(H100), machine(B200)) == 0


def test_a_time_that_is_slow_for_lack_of_room_is_drawn_down() -> None:
    assert moved(L40S, H100, 1000.0) < 200.0
    assert moved(L40S, B200, 1000.0) < 200.0


def test_the_more_a_family_scatters_the_less_it_draws() -> None:
    found = [moved(L40S, H100, 1000.0, scatter=scatter) for scatter in (0.1, 0.5, 2.0)]
    assert found == sorted(found)
    assert found[-1] > 5 * found[0]


@pytest.mark.parametrize(("source", "target"), [(H100, L40S), (B200, H100), (H100, B200)])
def test_where_the_source_did_not_lack_room_nothing_is_drawn(source: str, target: str) -> None:
    assert moved(source, target, 1000.0) == 1000.0


def test_a_family_that_was_never_seen_has_no_habit() -> None:
    assert moved(L40S, H100, 1000.0, family="made_up") == 1000.0
    assert with_habit(0.1).habit("made_up", 1.0) is None


def test_a_habit_is_read_off_between_its_points_and_ends_with_them() -> None:
    constants = shipped().with_(habits={"gemm": (Habit(0.0, 0.0, 0.1), Habit(2.0, 1.0, 0.3))})
    for log_us, excess in ((-5.0, 0.0), (0.0, 0.0), (1.0, 0.5), (2.0, 1.0), (9.0, 1.0)):
        found = constants.habit("gemm", log_us)
        assert found is not None
        assert found.excess == pytest.approx(excess)


def test_that_a_time_was_drawn_is_said() -> None:
    samples = [
        Sample(L40S, "gemm", "tiles", "k", {"m": m}, Work(m * 1e7, m * 1e5 + 1e7, "bfloat16"), 30 + m / 4)
        for m in (16.0, 64.0, 256.0, 1024.0)
    ]
    asked = Ask(H100, "gemm", "tiles", "k", {"m": 256.0}, samples[2].work)
    found = predict(asked, samples)
    assert found.case == "generations"
    assert any("less shared memory" in reason for reason in found.reasons)
    back = predict(asked.with_(device=L40S), [one.with_(device=H100) for one in samples])
    assert not any("less shared memory" in reason for reason in back.reasons)
