"""How far from the original a model may be: computed from figures alone, so that a record can be checked again."""

from collections.abc import Mapping

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
