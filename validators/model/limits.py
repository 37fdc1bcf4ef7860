"""How far from the original a model may be: computed from figures alone, so that a record can be checked again."""

from collections.abc import Mapping

import torch

SLACK: Mapping[str, float] = {"kl_mean": 2.0, "kl_p90": 2.0, "kl_p999": 3.0, "kl_max": 4.0}
"""A candidate may be this many times as far from the original as the original's own rounding: its noise, and the
declared format emulated in the original. Other rounding of the same format moves a mean little and a maximum more."""

TINY = 1e-7
"""KL in nats below which float32 logits say nothing."""


def admitted(noise: Mapping[str, float], budget: Mapping[str, float]) -> dict[str, float]:
    """Return the largest distance that is admitted, by name, in nats.

    Args:
        noise: Distance of the original as stored from the original in float32.
        budget: Distance of the original with its matrices rounded to the declared format.
    """
    return {name: slack * (noise[name] + budget[name]) + TINY for name, slack in SLACK.items()}


def exceeded(found: Mapping[str, float], limits: Mapping[str, float]) -> list[str]:
    """Name the figures that are above their limit, or are no numbers."""
    return [name for name, most in limits.items() if not found[name] <= most]


def drawn(missed: torch.Tensor, limits: Mapping[str, float]) -> tuple[float, int]:
    """Hold a text's tokens against the admitted distance.

    Pinsker: two distributions whose KL is at most k differ by at most sqrt(k / 2) on any set of tokens, so a number
    that drew a token of one lies at most that far outside the token's interval in the other. The maximum is wide where
    a rare flip of a router made it so, and a text from thin air can stay below it; such a text misses at most tokens by
    more than the 90th percentile admits, which a text that was drawn exceeds at one in ten.

    Args:
        missed: float64 [new], how far each number lies outside its token's interval, in probability.
        limits: Admitted distances, nats.

    Returns:
        The larger of both ratios to what is admitted, above 1 for a text that was not drawn from the original; and how
        many tokens were further off than the stricter of the two admits.
    """
    most, usual = ((limits[name] / 2) ** 0.5 for name in ("kl_max", "kl_p90"))
    count = missed.numel()
    beyond = int((missed > usual).sum())
    # Three standard deviations above one in ten.
    crowded = beyond / (0.1 * count + 3 * (0.09 * count) ** 0.5)
    return max(float(missed.max()) / most, crowded), beyond
