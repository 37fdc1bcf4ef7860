"""Input laws of the gated delta rule, for whole sequences; a decoding step takes the first token of one."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from kb.validators.operators.draws import mixed
from kb.validators.operators.spec import DTYPES, Arguments, Axes, Law


@dataclass
class Drawn:
    """What a law may still change, all float32."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    g: torch.Tensor
    beta: torch.Tensor
    state: torch.Tensor

    def finish(self, dtype: str) -> Arguments:
        """Normalise q and k, round to the dtype, add the scale."""
        kind = DTYPES[dtype]
        q, k = _unit(self.q).to(kind), _unit(self.k).to(kind)
        return q, k, self.v.to(kind), self.g, self.beta, self.state, self.q.shape[-1] ** -0.5


def _unit(x: torch.Tensor) -> torch.Tensor:
    return x / x.square().sum(-1, keepdim=True).sqrt().clamp_min(1e-6)


def _draw(axes: Axes, generator: torch.Generator) -> Drawn:
    lead = (axes["batch_size"], axes["seq_len"])
    heads, v_heads, dim, dim_v = (axes[name] for name in ("num_heads", "num_v_heads", "head_dim", "head_dim_v"))
    q = torch.randn(*lead, heads, dim, generator=generator)
    k = torch.randn(*lead, heads, dim, generator=generator)
    slow = torch.empty(v_heads).uniform_(-6, 0.5, generator=generator)
    g = -torch.exp(slow + 0.5 * torch.randn(*lead, v_heads, generator=generator))
    beta = torch.sigmoid(1.5 * torch.randn(*lead, v_heads, generator=generator))
    size = torch.exp2(torch.randint(-2, 3, (*lead, v_heads, 1), generator=generator).float())
    v = torch.randn(*lead, v_heads, dim_v, generator=generator) * size
    return Drawn(q, k, v, g, beta, 0.5 * torch.randn(lead[0], v_heads, dim, dim_v, generator=generator))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Unit q and k, heads that forget after 1 to 400 tokens, values of scale 2^-2 … 2^2, a state that is not zero."""
    return _draw(axes, generator).finish(dtype)


def repeated_keys(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Three key directions, beta near 1, almost no decay: powers of the triangular matrix explode, not its inverse."""
    made = _draw(axes, generator)
    centres = torch.randn(3, axes["head_dim"], generator=generator)
    made.k = centres[torch.randint(3, made.k.shape[:3], generator=generator)] + 0.05 * made.k
    made.q = made.k.roll(1, 1) + 0.05 * made.q
    made.g, made.beta = made.g * 0.01, 1 - 0.1 * made.beta
    return made.finish(dtype)


def extreme_gates(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Gates at their ends: no decay or all of it (g of 0 or -20), nothing or all written (beta of 0 or 1).

    exp(-20) is nothing beside a float32. exp of a sum of decays underflows and its inverse overflows, where the
    difference of two sums does neither; what that difference loses (u times the sum) stays within the bound.
    """
    made = _draw(axes, generator)
    pick = torch.randint(0, 4, made.g.shape, generator=generator)
    made.g = torch.where(pick == 0, -20.0, torch.where(pick == 1, 0.0, made.g))
    pick = torch.randint(0, 4, made.g.shape, generator=generator)
    made.beta = torch.where(pick == 0, 0.0, torch.where(pick == 1, 1.0, made.beta))
    return made.finish(dtype)


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Values and rows of the state of scale 2^-6 … 2^6, the first of which look nominal."""
    made = _draw(axes, generator)
    made.v = mixed(tuple(made.v.shape), generator, spread=6, tail=2)
    made.state = mixed(tuple(made.state.shape), generator, spread=6, tail=2)
    return made.finish(dtype)


def remembering(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """No decay and a state of scale 32: what counts is the state, and every token of the sequence to the last."""
    made = _draw(axes, generator)
    made.g = torch.zeros_like(made.g)
    made.state = 64 * made.state
    return made.finish(dtype)


def strided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Like ``normal``, but q, k and v are slices of one buffer, as the convolution before them leaves them."""
    made = _draw(axes, generator)
    made.q, made.k = _unit(made.q), _unit(made.k)
    three = [one.to(DTYPES[dtype]) for one in (made.q, made.k, made.v)]
    fused = torch.cat([one.flatten(2) for one in three], -1)
    widths = [one.shape[2] * one.shape[3] for one in three]
    parts = [part.view(one.shape) for part, one in zip(torch.split(fused, widths, -1), three, strict=True)]
    return *parts, made.g, made.beta, made.state, axes["head_dim"] ** -0.5


LAWS: Mapping[str, Law] = {
    "normal": normal,
    "repeated_keys": repeated_keys,
    "strided": strided,
    "extreme_gates": extreme_gates,
    "mixed_scale": mixed_scale,
    "remembering": remembering,
}
"""All of them; axes batch_size, seq_len, num_heads, num_v_heads, head_dim, head_dim_v."""
