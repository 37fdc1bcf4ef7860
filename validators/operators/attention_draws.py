"""Input laws that every dense attention shares: what softmax, its maximum and its weights have to stand."""

from collections.abc import Callable, Mapping

import torch

from kb.validators.operators.draws import mixed
from kb.validators.operators.spec import Arguments, Axes, Law

Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""q, k and v in float32, [batch, tokens, heads, head_dim]."""
Draw = Callable[[Axes, torch.Generator], Operands]
Finish = Callable[[Operands, Axes, str, torch.Generator], Arguments]


def _direction(q: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Draw one vector of signs, [head_dim]: its product with itself is head_dim."""
    return 1.0 - 2 * torch.randint(0, 2, q.shape[-1:], generator=generator)


def laws(draw: Draw, finish: Finish) -> Mapping[str, Law]:
    """Return the shared laws of one operator.

    Args:
        draw: Draws q, k and v as the operator's law ``normal`` does.
        finish: Turns them into the operator's arguments.

    Returns:
        Name to law.
    """

    def offset_logits(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
        """All keys look the same way as the queries: logits around 36 sqrt(head_dim), whose exp overflows."""
        q, k, v = draw(axes, generator)
        way = 6 * _direction(q, generator)
        return finish((q + way, k + way, v), axes, dtype, generator)

    def late_keys(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
        """The last eighth of the keys takes nearly all weight: a dropped or masked tail shows, early maxima are off."""
        q, k, v = draw(axes, generator)
        way = _direction(q, generator)
        count = max(1, k.shape[1] // 8)
        k[:, k.shape[1] - count :] += 3 * way
        return finish((q + 2 * way, k, v), axes, dtype, generator)

    def flat(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
        """All keys of a head are equal and their values differ: every key weighs the same, the result is a mean."""
        q, k, v = draw(axes, generator)
        return finish((q, k[:, :1].expand(k.shape).contiguous(), v), axes, dtype, generator)

    def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
        """Queries of scale 2^-4 … 2^4 and values of 2^-8 … 2^8, both behind nominal ones."""
        q, k, v = draw(axes, generator)
        q, v = mixed(tuple(q.shape), generator, spread=4, tail=1), mixed(tuple(v.shape), generator)
        return finish((q, k, v), axes, dtype, generator)

    return {"offset_logits": offset_logits, "late_keys": late_keys, "flat": flat, "mixed_scale": mixed_scale}
