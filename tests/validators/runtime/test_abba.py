"""The experiment on a GPU, as far as it runs without one: its plan, its counts, its intervals."""

from collections import Counter

import pytest

from tests.gpu import abba


def test_every_question_is_asked_as_often_and_with_both_roles() -> None:
    rows = abba.plan(10)
    assert Counter(wanted for *_, wanted in rows) == {"SAME": 10, "SLOW": 5, "FAST": 5}
    assert Counter(row[1:3] for row in rows if row[0] == "itself") == {("same", "base"): 5, ("base", "same"): 5}


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    [
        (95, 100, 0.8872, 0.9836),
        (0, 47, 0.0, 0.0755),
        (47, 47, 0.9245, 1.0),
        (35, 48, 0.5815, 0.8472),
        (0, 0, 0.0, 1.0),
    ],
)
def test_intervals_are_the_exact_binomial_ones(hits: int, total: int, low: float, high: float) -> None:
    assert abba.clopper_pearson(hits, total) == pytest.approx((low, high), abs=6e-5)


def test_a_verdict_in_the_wrong_direction_and_a_quarantined_one_are_no_success() -> None:
    rows = [
        {"what": "slower", "wanted": "SLOW", "verdict": verdict, "quarantined": why}
        for verdict, why in (("SLOW", None), ("FAST", None), ("AMBIGUOUS", None), ("SLOW", "late_results"))
    ]
    found = abba.summary(rows)["five percent"]
    assert (found["right"], found["wrong_direction"], found["sessions"]) == (1, 1, 4)


def test_both_kernels_differ_in_the_length_of_their_loop_alone() -> None:
    one, other = (abba.source(device, turns).decode() for device, turns in (("cuda:0", 101), ("cuda:0", 105)))
    assert one.replace("TURNS = 101", "TURNS = 105") == other
    compile(one, "candidate.py", "exec")
