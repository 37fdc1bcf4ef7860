"""All-reduce, residual add and RMSNorm in one operator: what stands between two blocks under tensor parallelism.

The residual is scattered: each rank holds that of its own tokens (``ranks.own_rows``) and gets its new one back. A rank
may fold it into its summand, so one-shot, two-shot and ring schemes all fit; where every rank keeps the whole residual,
one all-gather of ``residual_out`` is added to the contract.
"""

from typing import cast

import torch

from kb.validators.operators import ranks
from kb.validators.operators.draws import epsilon
from kb.validators.operators.spec import (
    DTYPES,
    UNIT_ROUNDOFF,
    Arguments,
    Axes,
    Buffer,
    Cost,
    ErrorModel,
    Operator,
    Scalar,
    Wire,
    Workload,
    itemsize,
)

C_ACC = 64

Rank = tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]


def _parts(given: tuple[Arguments, ...]) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor, float]:
    """Return all summands, the whole residual, the weight and eps, wide."""
    each = [cast(Rank, one) for one in given]
    partials = [one[0].to(torch.float64) for one in each]
    residual = torch.cat([one[1].to(torch.float64) for one in each])
    return partials, residual, each[0][2].to(torch.float64), each[0][3]


def _by_rank(normed: torch.Tensor, residual: torch.Tensor, world: int) -> tuple[torch.Tensor, ...]:
    return tuple(out for own in torch.tensor_split(residual, world) for out in (normed.clone(), own.clone()))


def reference(*given: Arguments) -> tuple[torch.Tensor, ...]:
    """Return (normed, residual_out) of rank 0, of rank 1, and so on, in float64.

    Args:
        given: Of each rank: partial [num_tokens, hidden_size], residual [its tokens, hidden_size], weight
            [hidden_size], eps.
    """
    partials, residual, weight, eps = _parts(given)
    total = torch.stack([*partials, residual]).sum(0)
    normed = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + eps) * weight
    return _by_rank(normed, total, len(given))


def condition(*given: Arguments) -> tuple[torch.Tensor, ...]:
    """Return S of both results: of the sum, sqrt(sum of squares of its terms); of the norm, what that does to it.

    An error d of the sum moves the norm by d weight / rms, and through rms by at most |y| |d| / |sum|, both of rows.
    The residual counts as one term more, since a rank may add it to its summand before sending.
    """
    partials, residual, weight, eps = _parts(given)
    terms = torch.stack([*partials, residual])
    total, size = terms.sum(0), terms.square().sum(0).sqrt()
    roundoff = UNIT_ROUNDOFF[str(cast(Rank, given[0])[0].dtype).removeprefix("torch.")]
    # Two conventions are in production: normalise the wide sum, or the one already rounded to the storage dtype.
    unit = C_ACC * UNIT_ROUNDOFF["float32"]
    size = ranks.widened(size, terms=len(terms), dtype_roundoff=roundoff, unit=unit)
    rms = (total.square().mean(-1, keepdim=True) + eps).sqrt()
    direct = size + total.abs() * roundoff / unit
    through = total.abs() * direct.square().mean(-1, keepdim=True).sqrt() / rms
    return _by_rank((direct + through + total.abs()) / rms * weight.abs(), size, len(given))


def wire(*given: Arguments) -> Wire:
    """As for an all-reduce of the summands: the residual and the norm need no traffic of their own.

    Args:
        given: As for ``reference``.
    """
    x, world = cast(torch.Tensor, given[0][0]), len(given)
    size = x.numel() * x.itemsize
    one = size if world > 1 else 0
    return Wire((one,) * world, (one,) * world, 2 * (world - 1) * size)


def cost(axes: Axes, dtype: str) -> Cost:
    """One addition an element and rank, five operations an element for residual and norm, once."""
    world, elements = axes["world_size"], axes["num_tokens"] * axes["hidden_size"]
    return Cost((world + 5) * elements, (2 * (world + 1) * elements + world * axes["hidden_size"]) * itemsize(dtype))


def _finish(partials: list[torch.Tensor], axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    residual = 4 * torch.randn(axes["num_tokens"], axes["hidden_size"], generator=generator)
    weight = (1 + 0.5 * torch.randn(axes["hidden_size"], generator=generator)).to(DTYPES[dtype])
    own = torch.tensor_split(residual.to(DTYPES[dtype]), axes["world_size"])
    eps = epsilon(generator)
    return tuple((x, part.clone(), weight.clone(), eps) for x, part in zip(partials, own, strict=True))


def _draw(law: str, axes: Axes, dtype: str, generator: torch.Generator) -> list[torch.Tensor]:
    shapes = [(axes["num_tokens"], axes["hidden_size"])] * axes["world_size"]
    return ranks.draw(law, shapes, dtype, generator)


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Noise of another scale on every rank, on a residual stream of scale 4; weights around 1."""
    return _finish(_draw("normal", axes, dtype, generator), axes, dtype, generator)


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Each rank dominates another stretch of the tokens."""
    return _finish(_draw("mixed_scale", axes, dtype, generator), axes, dtype, generator)


def one_rank(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """One rank holds nearly all energy."""
    return _finish(_draw("one_rank", axes, dtype, generator), axes, dtype, generator)


def poison(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """A NaN of any rank makes its own token NaN on every rank, and no other one."""
    return _finish(_draw("poison", axes, dtype, generator), axes, dtype, generator)


def strided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, but the summands are slices of wider rows."""
    return _finish(ranks.strided(_draw("normal", axes, dtype, generator)), axes, dtype, generator)


SPEC = Operator(
    name="all_reduce_rmsnorm",
    summary="h = residual + sum of partial over the ranks; normed = h / sqrt(mean(h^2) + eps) * weight, everywhere",
    signature="all_reduce_rmsnorm(partial, residual, weight, eps, group)",
    axes=("world_size", "num_tokens", "hidden_size"),
    inputs=(
        Buffer("partial", ("num_tokens", "hidden_size"), doc="this rank's summand"),
        Buffer("residual", ("num_tokens of this rank", "hidden_size"), doc="of this rank's own tokens"),
        Buffer("weight", ("hidden_size",), static=True),
        Scalar("eps", 1e-6, "added to the mean square"),
    ),
    outputs=(
        Buffer("normed", ("num_tokens", "hidden_size")),
        Buffer("residual_out", ("num_tokens of this rank", "hidden_size"), doc="h of this rank's own tokens"),
    ),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=C_ACC, c_out=2),
    cost=cost,
    laws={"normal": normal, "mixed_scale": mixed_scale, "one_rank": one_rank, "poison": poison, "strided": strided},
    workloads=(
        *ranks.workloads(
            (
                (2, 1, 1, "float32", "normal"),
                (4, 0, 64, "bfloat16", "normal"),
                (4, 1, 127, "bfloat16", "normal"),
                (3, 7, 257, "float32", "mixed_scale"),
                (2, 5, 129, "float16", "one_rank"),
                (4, 11, 65, "float32", "one_rank"),
                (3, 6, 33, "float32", "poison"),
                (3, 13, 64, "bfloat16", "strided"),
                (4, 64, 256, "bfloat16", "mixed_scale"),
            )
        ),
        *(
            Workload(
                {"world_size": world, "num_tokens": tokens, "hidden_size": 2048}, "bfloat16", use="target",
                note=f"Qwen3.6 {what}, TP {world}",
            )
            for world in (2, 4)
            for tokens, what in ((1, "decode"), (64, "decode, batch 64"), (4096, "prefill"))
        ),
    ),
    source="Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022",
    baselines=("torch.distributed.all_reduce, then rms_norm", "flashinfer.comm.trtllm_allreduce_fusion"),
    family="comm",
    wire=wire,
)  # fmt: skip
