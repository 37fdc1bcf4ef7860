"""Published figures are checked arithmetically when they are loaded."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kb.models.claims import Claim


def claim(**changes: object) -> Claim:
    given: dict[str, Any] = {
        "metric": "decode_tokens_per_s", "value": 1792, "unit": "tokens/s", "better": "higher", "device": "NVIDIA B200",
        "workload": "single stream", "baseline": "vLLM 0.25.1", "baseline_value": 943, "gain_percent": 90,
        "gain_kind": "increase", "source": "published by the campaign's authors",
    }  # fmt: skip
    return Claim.model_validate({**given, **changes})


@pytest.mark.parametrize(
    ("value", "baseline", "percent", "kind", "better"),
    [
        (1792, 943, 90, "increase", "higher"),
        (12, 28, 57, "reduction", "lower"),
        (10307, 6030, 71, "increase", "higher"),
    ],
)
def test_the_published_gains_follow_from_their_figures(
    value: float, baseline: float, percent: float, kind: str, better: str
) -> None:
    made = claim(value=value, baseline_value=baseline, gain_percent=percent, gain_kind=kind, better=better)
    assert made.derived_speedup is not None
    assert made.derived_speedup > 1


@pytest.mark.parametrize("percent", [89, 91.5, 190, 47])
def test_a_gain_that_does_not_follow_is_refused_with_the_right_one(percent: float) -> None:
    with pytest.raises(ValidationError, match=r"give 90\.0"):
        claim(gain_percent=percent)


def test_a_speedup_that_does_not_follow_is_refused() -> None:
    with pytest.raises(ValidationError, match="does not follow"):
        claim(speedup=2.33)
    assert claim(speedup=1.9).speedup == 1.9


def test_time_to_first_token_is_2_33_times_faster() -> None:
    made = claim(value=12, baseline_value=28, gain_percent=57, gain_kind="reduction", better="lower", speedup=2.33)
    assert made.derived_speedup == pytest.approx(28 / 12)


def test_a_gain_without_the_baselines_figure_is_kept_as_published() -> None:
    assert claim(value=91, baseline_value=None, gain_percent=50).derived_speedup == 1.5


@pytest.mark.parametrize(
    "changes",
    [
        {"value": 0}, {"value": -1}, {"value": float("nan")}, {"value": float("inf")}, {"baseline": None},
        {"gain_kind": None}, {"source": ""}, {"better": "more"}, {"unknown": 1}, {"value": "1792"}, {"value": True},
    ],
)  # fmt: skip
def test_nonsense_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        claim(**changes)


@given(st.floats(0.1, 1e6), st.floats(0.1, 1e6))
def test_the_true_gain_is_always_accepted(value: float, baseline: float) -> None:
    percent = 100 * (value / baseline - 1)
    if percent > 1e-6:
        claim(value=value, baseline_value=baseline, gain_percent=percent)
