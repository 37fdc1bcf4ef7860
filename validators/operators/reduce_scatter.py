"""Reduce-scatter: every rank gets its own rows of the sum over the ranks."""

from typing import cast

import torch

from kb.validators.operators import ranks
from kb.validators.operators.spec import (
    UNIT_ROUNDOFF,
    Arguments,
    Axes,
    Buffer,
    Cost,
    ErrorModel,
    Operator,
    Wire,
    Workload,
    itemsize,
)

C_ACC = 8


def _own(whole: torch.Tensor, world: int) -> tuple[torch.Tensor, ...]:
    return tuple(one.clone() for one in torch.tensor_split(whole, world))


def reference(*given: Arguments) -> tuple[torch.Tensor, ...]:
    """Return each rank's rows of the sum in float64; each of ``given`` is one rank's (x [num_tokens, hidden_size],)."""
    xs = [cast(torch.Tensor, one[0]).to(torch.float64) for one in given]
    return _own(torch.stack(xs).sum(0), len(xs))


def condition(*given: Arguments) -> tuple[torch.Tensor, ...]:
    """Return S = sqrt(sum of squares over the ranks), widened by partial sums in the data's dtype."""
    xs = [cast(torch.Tensor, one[0]) for one in given]
    size = torch.stack([one.to(torch.float64) for one in xs]).square().sum(0).sqrt()
    roundoff = UNIT_ROUNDOFF[str(xs[0].dtype).removeprefix("torch.")]
    unit = C_ACC * UNIT_ROUNDOFF["float32"]
    return _own(ranks.widened(size, terms=len(xs), dtype_roundoff=roundoff, unit=unit), len(xs))


def wire(*given: Arguments) -> Wire:
    """What belongs to others must leave a rank, its own rows must reach it; together (p - 1) n must be sent.

    Args:
        given: As for ``reference``.
    """
    x, world = cast(torch.Tensor, given[0][0]), len(given)
    row = x.shape[1] * x.itemsize
    own = [len(ranks.own_rows(x.shape[0], rank, world)) * row for rank in range(world)]
    total = x.shape[0] * row
    received = tuple(size if world > 1 else 0 for size in own)
    return Wire(tuple(total - size for size in own), received, (world - 1) * total)


def lossy(roundoff: float, *given: Arguments) -> tuple[torch.Tensor, ...]:
    """Every summand is rounded on its way.

    Args:
        roundoff: Unit roundoff of the format on the wire.
        given: As for ``reference``.
    """
    sent = torch.stack([ranks.rounded(cast(torch.Tensor, one[0]).to(torch.float64), roundoff) for one in given]).sum(0)
    return _own(sent, len(given))


def cost(axes: Axes, dtype: str) -> Cost:
    """One addition an element and rank; every rank reads its tensor and writes its rows."""
    elements = axes["num_tokens"] * axes["hidden_size"]
    return Cost(axes["world_size"] * elements, (axes["world_size"] + 1) * elements * itemsize(dtype))


SPEC = Operator(
    name="reduce_scatter",
    summary="y = this rank's rows of the sum of x over the ranks; rows are cut as torch.tensor_split cuts",
    signature="reduce_scatter(x, group)",
    axes=("world_size", "num_tokens", "hidden_size"),
    inputs=(Buffer("x", ("num_tokens", "hidden_size"), doc="this rank's summand"),),
    outputs=(Buffer("y", ("num_tokens of this rank", "hidden_size"), doc="the first ranks have one row more"),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=C_ACC, c_out=2),
    cost=cost,
    laws=ranks.SUMMANDS,
    exact_laws=("integers",),
    workloads=(
        *ranks.workloads(
            (
                (2, 1, 1, "float32", "normal"),
                (4, 0, 64, "bfloat16", "normal"),
                (4, 3, 127, "bfloat16", "normal"),
                (3, 7, 1031, "float32", "mixed_scale"),
                (2, 5, 257, "float16", "cancelling"),
                (4, 9, 101, "float32", "one_rank"),
                (3, 11, 65, "bfloat16", "sparse"),
                (4, 6, 83, "float32", "poison"),
                (4, 13, 97, "bfloat16", "integers"),
                (3, 37, 64, "float16", "strided"),
                (4, 64, 256, "bfloat16", "mixed_scale"),
            )
        ),
        *(
            Workload(
                {"world_size": world, "num_tokens": tokens, "hidden_size": 2048}, "bfloat16", use="target",
                note=f"Qwen3.6 {what}, sequence parallel, TP {world}",
            )
            for world in (2, 4)
            for tokens, what in ((64, "decode, batch 64"), (4096, "prefill"))
        ),
    ),
    source="MPI: A Message-Passing Interface Standard 4.1, section 6.10 (MPI_Reduce_scatter)",
    baselines=("torch.distributed.reduce_scatter_tensor", "nccl-tests reduce_scatter_perf"),
    family="comm",
    wire=wire,
    lossy=lossy,
)  # fmt: skip
