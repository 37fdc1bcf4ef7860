"""Limits of distance: what drawn texts stay within and texts from thin air do not."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kb.validators.model import figures, limits

LIMITS = {"kl_max": 0.1, "kl_p90": 0.0005}


def test_a_text_that_was_drawn_is_within() -> None:
    assert limits.drawn(torch.zeros(48), LIMITS) == (0.0, 0)


def test_one_token_far_outside_is_enough() -> None:
    missed = torch.zeros(48)
    missed[7] = 0.25
    worst, beyond = limits.drawn(missed, LIMITS)
    assert worst > 1
    assert beyond == 1


def test_rare_flips_within_the_maximum_are_admitted() -> None:
    missed = torch.zeros(48)
    missed[[3, 9, 20, 40]] = 0.2
    assert limits.drawn(missed, LIMITS)[0] < 1


def test_many_tokens_a_little_outside_are_not_drawn_even_where_the_maximum_is_wide() -> None:
    assert limits.drawn(torch.full((48,), 0.05), LIMITS)[0] > 2


@given(st.integers(0, 2**32 - 1))
def test_draws_from_a_rounded_model_pass_and_draws_from_thin_air_do_not(seed: int) -> None:
    made = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(96, 500, generator=made, dtype=torch.float64)
    rounded = logits + 0.02 * torch.randn(96, 500, generator=made, dtype=torch.float64)
    exact, other = torch.log_softmax(logits, -1), torch.log_softmax(rounded, -1)
    uniforms = torch.rand(96, generator=made, dtype=torch.float64)
    drawn = torch.searchsorted(other.exp().cumsum(-1), uniforms[:, None], right=True)[:, 0].clamp(max=499)
    kl = (exact.exp() * (exact - other)).sum(-1)
    admitted = {"kl_max": 20 * float(kl.max()), "kl_p90": 2 * float(kl.quantile(0.9))}
    passed = figures.misses(exact, uniforms.tolist(), drawn.tolist())
    assert limits.drawn(passed, admitted)[0] <= 1
    invented = figures.misses(exact, uniforms.tolist(), (uniforms * 500).long().tolist())
    assert limits.drawn(invented, admitted)[0] > 1
