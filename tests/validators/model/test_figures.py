"""Distances between distributions, variety of texts, replay of draws."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kb.validators.model import figures

CHANCES = torch.tensor([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]], dtype=torch.float64).log()


def test_equal_distributions_are_no_distance_apart() -> None:
    found = figures.distance([CHANCES], [CHANCES], [[0, 1]])
    assert (found.kl_mean, found.kl_max, found.agreement, found.positions) == (0.0, 0.0, 1.0, 2)


def test_a_distance_is_the_textbook_one() -> None:
    other = torch.tensor([[0.25, 0.5, 0.25], [0.25, 0.5, 0.25]], dtype=torch.float64).log()
    found = figures.distance([CHANCES], [other], [[0, 1]])
    first = 0.5 * math.log(2) - 0.25 * math.log(2)
    assert found.kl_mean == pytest.approx((first + math.log(2)) / 2)
    assert found.agreement == 0.5
    assert found.log_prob_shift == pytest.approx(math.log(0.5) - math.log(0.25))


def test_a_distribution_without_what_the_original_has_is_infinitely_far() -> None:
    other = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], dtype=torch.float64).log()
    assert figures.distance([CHANCES], [other], [[0, 1]]).kl_max == math.inf


def test_one_token_for_ever_has_no_variety_and_no_entropy() -> None:
    assert figures.variety([7] * 50) == 0.02
    assert figures.entropy([7] * 50) == 0.0
    assert figures.entropy([1, 2, 3, 4]) == pytest.approx(math.log(4))


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20))
def test_a_draw_by_inverse_cdf_misses_nothing(uniforms: list[float]) -> None:
    chances = torch.softmax(torch.linspace(-3, 3, 11, dtype=torch.float64), 0)
    drawn = [min(int((chances.cumsum(0) <= u).sum()), 10) for u in uniforms]
    rows = chances.log().expand(len(uniforms), 11)
    assert float(figures.misses(rows, uniforms, drawn).max()) <= 1e-12


def test_a_draw_of_another_token_misses_by_what_lies_between() -> None:
    found = figures.misses(CHANCES[:1], [0.1], [2])
    assert float(found[0]) == pytest.approx(0.65)
