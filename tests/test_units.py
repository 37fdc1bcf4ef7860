"""Figures are combined by geometric mean and written with their unit."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.units import format_figure, geometric_mean, speedup_of


def test_the_geometric_mean_of_nothing_is_none() -> None:
    assert geometric_mean([]) is None


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_ratio_that_would_hide_the_others_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        geometric_mean([2.0, bad])


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20))
def test_inverting_every_ratio_inverts_the_mean(ratios: list[float]) -> None:
    mean, inverse = geometric_mean(ratios), geometric_mean([1 / r for r in ratios])
    assert mean is not None
    assert inverse is not None
    assert mean * inverse == pytest.approx(1)


def test_figures_are_written_with_their_unit() -> None:
    assert format_figure(1792, "tokens/s") == "1,792 tokens/s"
    assert format_figure(12.345678, "us") == "12.35 us"
    assert format_figure(123456.7, "us") == "123,457 us"


def test_a_speed_up_is_baseline_time_over_candidate_time() -> None:
    assert speedup_of(12, better="lower", baseline_value=28) == pytest.approx(28 / 12)
    assert speedup_of(90, better="higher", gain_percent=50, gain_kind="increase") == 1.5
    assert speedup_of(12, better="lower", gain_percent=57, gain_kind="reduction") == pytest.approx(1 / 0.43)
    assert speedup_of(12, better="lower", gain_percent=100, gain_kind="reduction") is None
    assert speedup_of(12, better="lower") is None
