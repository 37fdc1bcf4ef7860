"""Joined scores keep the order that both agree on, and say 0 to 1."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.errors import ConfigError
from kb.retrieval.fuse import convex, normalised, reciprocal_ranks

SCORES = st.dictionaries(st.integers(0, 20), st.floats(-100, 100, allow_nan=False), max_size=12)
WEIGHTS = st.floats(0, 1)


@given(SCORES)
def test_normalised_scores_keep_their_order_between_0_and_1(scores: dict[int, float]) -> None:
    made = normalised(scores)
    assert made.keys() == scores.keys()
    assert all(0.0 <= value <= 1.0 for value in made.values())
    for one in scores:
        for other in scores:
            if scores[one] > scores[other]:
                assert made[one] >= made[other]


def test_equal_scores_are_all_1() -> None:
    assert normalised({1: 3.0, 2: 3.0}) == {1: 1.0, 2: 1.0}
    assert normalised({}) == {}


@given(SCORES, SCORES, WEIGHTS)
def test_a_convex_sum_has_everything_that_either_has(
    words: dict[int, float], meaning: dict[int, float], weight: float
) -> None:
    made = convex(words, meaning, weight=weight)
    assert made.keys() == words.keys() | meaning.keys()
    assert all(-1e-9 <= value <= 1.0 + 1e-9 for value in made.values())


@given(SCORES, SCORES)
def test_at_the_ends_one_side_decides_alone(words: dict[int, float], meaning: dict[int, float]) -> None:
    assert {key: value for key, value in convex(words, meaning, weight=0.0).items() if key in words} == normalised(
        words
    )
    only = convex(words, meaning, weight=1.0)
    assert {key: value for key, value in only.items() if key in meaning} == normalised(meaning)


@given(SCORES, SCORES, WEIGHTS)
def test_what_is_better_in_both_is_better_in_the_sum(
    words: dict[int, float], meaning: dict[int, float], weight: float
) -> None:
    made = convex(words, meaning, weight=weight)
    both = words.keys() & meaning.keys()
    for one in both:
        for other in both:
            if words[one] >= words[other] and meaning[one] >= meaning[other]:
                assert made[one] >= made[other] - 1e-12


def test_meaning_lifts_but_does_not_outweigh_words_at_a_small_weight() -> None:
    made = convex({1: 10.0, 2: 9.0, 3: 0.0}, {2: 0.9, 4: 0.95, 3: 0.1}, weight=0.2)
    assert sorted(made, key=lambda key: -made[key]) == [2, 1, 4, 3]


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_a_weight_outside_of_0_to_1_is_refused(weight: float) -> None:
    with pytest.raises(ConfigError, match="expected 0 to 1"):
        convex({1: 1.0}, {1: 1.0}, weight=weight)


def test_reciprocal_ranks_add_up_and_ties_rank_by_key() -> None:
    made = reciprocal_ranks({2: 1.0, 1: 1.0}, {1: 0.5})
    assert made == {1: pytest.approx(2 / 61), 2: pytest.approx(1 / 62)}
