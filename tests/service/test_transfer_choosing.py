"""The shapes to measure on a target stand for all others, and are chosen without a time."""

import itertools
import math
import random
from collections.abc import Sequence

import pytest

from kb.prediction import Sample, Work
from kb.prediction.constants import shipped
from kb.prediction.curve import Curve, Place
from kb.prediction.machine import machine_of
from kb.service.transfer_choosing import anchored, chosen


def left(places: Sequence[Place], taken: Sequence[Place]) -> float:
    return sum(min(math.dist(place, one) for one in taken) for place in places)


def test_as_many_as_asked_are_chosen_and_all_are_different() -> None:
    places = [(float(i), float(j)) for i in range(8) for j in range(5)]
    for count in (1, 3, 8):
        found = chosen(places, count)
        assert len(set(found)) == count
        assert set(found) <= set(places)


def test_every_group_of_shapes_gets_one() -> None:
    places = [(group + step / 10,) for group in (0.0, 10.0, 20.0) for step in range(4)]
    assert sorted(round(place[0] / 10) for place in chosen(places, 3)) == [0, 1, 2]


def test_the_choice_is_about_as_good_as_the_best_of_all() -> None:
    rng = random.Random(3)  # noqa: S311 - not for secrets
    for _ in range(5):
        places = sorted((rng.uniform(0, 9), rng.uniform(0, 9)) for _ in range(12))
        best = min(left(places, list(some)) for some in itertools.combinations(places, 3))
        assert left(places, chosen(places, 3)) <= 1.1 * best


def curve(slow: float) -> Curve:
    machine = machine_of("NVIDIA H100 80GB HBM3")
    assert machine is not None
    samples = [
        Sample("NVIDIA H100 80GB HBM3", "gemm", "t", "s", {"m": 2.0**i}, Work(1e6, 1e6, "bfloat16"), 5 + slow * i)
        for i in range(16)
    ]
    return Curve(samples, machine, shipped().shape)


def test_no_time_has_a_part_in_the_choice() -> None:
    found, other = anchored(curve(0.1), 4), anchored(curve(90.0), 4)
    assert found is not None
    assert other is not None
    assert found.places == other.places


def test_never_more_than_half_are_taken() -> None:
    assert anchored(curve(1.0), 8) is not None
    assert anchored(curve(1.0), 9) is None


def test_choosing_twice_gives_the_same() -> None:
    places = [(float(i % 7), float(i // 7)) for i in range(40)]
    assert chosen(places, 8) == chosen(places, 8)
    one = curve(1.0)
    assert anchored(one, 4) is anchored(one, 4)


@pytest.mark.parametrize("count", [1, 2])
def test_shapes_in_one_place_are_no_fault(count: int) -> None:
    assert len(chosen([(1.0,), (1.0,), (1.0,)], count)) == count
