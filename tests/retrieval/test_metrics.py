"""Figures of a ranking are those of their definitions."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.retrieval import metrics

GRADES = {"a": 3, "b": 2, "c": 1}
rankings = st.lists(st.sampled_from(["a", "b", "c", "x", "y", "z"]), unique=True)


def test_the_ideal_order_has_ndcg_one() -> None:
    assert metrics.ndcg(["a", "b", "c"], GRADES, depth=10) == 1.0


def test_gains_grow_as_powers_of_two() -> None:
    ideal = 7 + 3 / math.log2(3) + 1 / 2
    assert metrics.ndcg(["b", "a"], GRADES, depth=10) == pytest.approx((3 + 7 / math.log2(3)) / ideal)


def test_only_the_first_places_count() -> None:
    ranked = [f"x{place}" for place in range(10)]
    assert metrics.quality([*ranked, "a"], GRADES) == metrics.Quality(0.0, 0.0, 0.0, 0.0)


def test_useful_is_grade_two_or_the_best_there_is() -> None:
    assert metrics.quality(["c", "b"], GRADES).mrr_at_10 == 0.5
    assert metrics.quality(["c"], {"c": 1}).hit_at_1 == 1.0


def test_recall_is_a_share_of_what_five_places_can_hold() -> None:
    many = {f"e{number}": 3 for number in range(9)}
    assert metrics.quality([f"e{number}" for number in range(5)], many).recall_at_5 == 1.0
    assert metrics.quality(["a"], GRADES).recall_at_5 == 0.5


def test_an_id_that_comes_again_earns_nothing() -> None:
    assert metrics.quality(["a", "a", "b"], GRADES) == metrics.quality(["a", "b"], GRADES)


def test_a_query_without_answers_is_refused() -> None:
    with pytest.raises(ValueError, match="no grade is above 0"):
        metrics.quality(["a"], {"a": 0})


@given(rankings)
def test_every_figure_is_a_share_and_the_ideal_is_never_passed(ranked: list[str]) -> None:
    found = metrics.quality(ranked, GRADES)
    best = metrics.quality(["a", "b", "c"], GRADES)
    for name in ("ndcg_at_10", "mrr_at_10", "recall_at_5", "hit_at_1"):
        assert 0.0 <= getattr(found, name) <= getattr(best, name) == 1.0


def test_percentiles_lie_between_neighbours() -> None:
    assert metrics.percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert metrics.percentile([7.0], 0.95) == 7.0


def test_a_bootstrap_interval_holds_its_mean_and_is_the_same_every_time() -> None:
    differences = [0.1, -0.05, 0.2, 0.0, 0.15, 0.1, 0.05, -0.1]
    found = metrics.bootstrap(differences)
    assert found == metrics.bootstrap(differences)
    assert found.low < found.mean < found.high
    assert found.mean == pytest.approx(sum(differences) / len(differences))


def test_an_interval_tells_a_difference_from_none() -> None:
    assert metrics.bootstrap([0.1, 0.12, 0.09, 0.11]).excludes_zero
    assert metrics.bootstrap([-0.1, -0.12, -0.09, -0.11]).excludes_zero
    assert not metrics.bootstrap([0.1, -0.1, 0.1, -0.1]).excludes_zero
    with pytest.raises(ValueError, match="no differences"):
        metrics.bootstrap([])


def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    draw = random.Random(3)  # noqa: S311 - the same numbers every time
    held = 0
    for _ in range(100):
        found = metrics.bootstrap([draw.gauss(0.2, 1.0) for _ in range(60)], samples=400)
        held += found.low <= 0.2 <= found.high
    assert 88 <= held <= 100


def test_kappa_is_one_in_agreement_and_none_by_chance() -> None:
    assert metrics.kappa([(0, 0), (1, 1), (3, 3)]) == 1.0
    assert metrics.kappa([(2, 2), (2, 2)]) == 1.0
    assert metrics.kappa([(0, 0), (0, 3), (3, 0), (3, 3)]) == 0.0
    assert metrics.kappa([(0, 3), (3, 0)]) < 0.0


def test_kappa_weighs_a_wide_gap_more() -> None:
    near = metrics.kappa([(0, 0), (1, 2), (2, 2), (3, 3)])
    wide = metrics.kappa([(0, 3), (1, 1), (2, 2), (3, 3)])
    assert near > wide


def test_grades_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="0 to 3"):
        metrics.kappa([(4, 0)])
    with pytest.raises(ValueError, match="no pairs"):
        metrics.kappa([])
