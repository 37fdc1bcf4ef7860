"""How far two models' answers are apart: pure functions on log-probabilities; they decide nothing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Distance:
    """How one model's distributions differ from the original's, over positions."""

    kl_mean: float
    """KL(original || other), nats."""
    kl_p90: float
    """What a fault that touches every tenth token moves, and a rare flip of a router does not."""
    kl_p999: float
    kl_max: float
    agreement: float
    """Share of positions at which both have the same most likely token."""
    log_prob_shift: float
    """Mean of the log-probability of the token that came, other minus original."""
    log_prob_shift_error: float
    """Its standard error."""
    positions: int


def distance(original: Sequence[torch.Tensor], other: Sequence[torch.Tensor], tokens: Sequence[list[int]]) -> Distance:
    """Compare teacher-forced answers.

    Args:
        original: Per text float64 log-probabilities [length, vocabulary] of the original weights.
        other: The same of the other model.
        tokens: The texts; the token at position i + 1 is what followed position i.

    Returns:
        The distance over all positions of all texts.
    """
    kl, same, shift = [], [], []
    for ours, theirs, text in zip(original, other, tokens, strict=True):
        terms = torch.where(torch.isneginf(ours), 0.0, ours.exp() * (ours - theirs))
        kl.append(terms.sum(-1).clamp(min=0))
        same.append((ours.argmax(-1) == theirs.argmax(-1)).double())
        came = torch.tensor(text[1:])[:, None]
        shift.append((theirs[:-1].gather(1, came) - ours[:-1].gather(1, came))[:, 0])
    all_kl, all_shift = torch.cat(kl), torch.cat(shift)
    error = float(all_shift.std() / math.sqrt(all_shift.numel())) if all_shift.numel() > 1 else math.inf
    return Distance(
        kl_mean=float(all_kl.mean()),
        kl_p90=float(torch.quantile(all_kl, 0.9)),
        kl_p999=float(torch.quantile(all_kl, 0.999)),
        kl_max=float(all_kl.max()),
        agreement=float(torch.cat(same).mean()),
        log_prob_shift=float(all_shift.mean()) if all_shift.numel() else 0.0,
        log_prob_shift_error=error,
        positions=all_kl.numel(),
    )


def variety(tokens: Sequence[int]) -> float:
    """Return the share of distinct tokens, 0 to 1; 1 for an empty text."""
    return len(set(tokens)) / len(tokens) if tokens else 1.0


def entropy(tokens: Sequence[int]) -> float:
    """Return the entropy of a text's own token frequencies, in nats."""
    counts = torch.bincount(torch.tensor(list(tokens), dtype=torch.int64)).double()
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * shares.log()).sum())


def misses(log_probs: torch.Tensor, uniforms: Sequence[float], tokens: Sequence[int]) -> torch.Tensor:
    """Return how far outside its token's interval each uniform number lies.

    Drawn by inverse CDF, the token at a step is the first whose cumulative probability exceeds u.

    Args:
        log_probs: float64 [new, vocabulary], the original's before each new token.
        uniforms: The numbers that were handed over.
        tokens: What the candidate drew.

    Returns:
        float64 [new], in probability; 0 where the original would have drawn the same token.
    """
    cumulative = log_probs.exp().cumsum(-1)
    cumulative[:, -1] = 1.0
    drawn = torch.tensor(list(tokens), dtype=torch.int64)[:, None]
    above = cumulative.gather(1, drawn)[:, 0]
    below = torch.where(drawn[:, 0] > 0, cumulative.gather(1, (drawn - 1).clamp(min=0))[:, 0], 0.0)
    u = torch.tensor(list(uniforms), dtype=torch.float64)
    return torch.maximum(below - u, u - above).clamp(min=0)
