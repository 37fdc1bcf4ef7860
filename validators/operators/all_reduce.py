"""All-reduce: every rank gets the sum of what all ranks have."""

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


def reference(*given: Arguments) -> tuple[torch.Tensor, ...]:
    """Return the sum in float64, once a rank; each of ``given`` is one rank's (x [num_tokens, hidden_size],)."""
    xs = [cast(torch.Tensor, one[0]).to(torch.float64) for one in given]
    return tuple(torch.stack(xs).sum(0) for _ in xs)


def condition(*given: Arguments) -> tuple[torch.Tensor, ...]:
    """Return S = sqrt(sum of squares over the ranks), widened by partial sums in the data's dtype."""
    xs = [cast(torch.Tensor, one[0]) for one in given]
    size = torch.stack([one.to(torch.float64) for one in xs]).square().sum(0).sqrt()
    roundoff = UNIT_ROUNDOFF[str(xs[0].dtype).removeprefix("torch.")]
    unit = C_ACC * UNIT_ROUNDOFF["float32"]
    return (ranks.widened(size, terms=len(xs), dtype_roundoff=roundoff, unit=unit),) * len(xs)


def wire(*given: Arguments) -> Wire:
    """Every rank's numbers must leave it and other numbers must reach it; together 2 (p - 1) n must be sent.

    Args:
        given: As for ``reference``.
    """
    x = cast(torch.Tensor, given[0][0])
    size, world = x.numel() * x.itemsize, len(given)
    one = size if world > 1 else 0
    return Wire((one,) * world, (one,) * world, 2 * (world - 1) * size)


def lossy(roundoff: float, *given: Arguments) -> tuple[torch.Tensor, ...]:
    """Every summand is rounded on its way, and the sum once more.

    Args:
        roundoff: Unit roundoff of the format on the wire.
        given: As for ``reference``.
    """
    sent = torch.stack([ranks.rounded(cast(torch.Tensor, one[0]).to(torch.float64), roundoff) for one in given]).sum(0)
    return tuple(sent + ranks.rounded(one, roundoff) + roundoff * sent for one in reference(*given))


def cost(axes: Axes, dtype: str) -> Cost:
    """One addition an element and rank; every rank reads and writes its tensor once."""
    elements = axes["world_size"] * axes["num_tokens"] * axes["hidden_size"]
    return Cost(flops=elements, essential_bytes=2 * elements * itemsize(dtype))


SPEC = Operator(
    name="all_reduce",
    summary="y = sum of x over the ranks, on every rank",
    signature="all_reduce(x, group)",
    axes=("world_size", "num_tokens", "hidden_size"),
    inputs=(Buffer("x", ("num_tokens", "hidden_size"), doc="this rank's summand"),),
    outputs=(Buffer("y", ("num_tokens", "hidden_size"), doc="a new tensor; x is left alone"),),
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
                (3, 1, 1, "bfloat16", "normal"),
                (4, 0, 64, "bfloat16", "normal"),
                (3, 7, 127, "float32", "mixed_scale"),
                (4, 5, 1031, "bfloat16", "normal"),
                (2, 3, 257, "float16", "cancelling"),
                (4, 2, 509, "float32", "cancelling"),
                (3, 9, 101, "bfloat16", "one_rank"),
                (4, 13, 67, "float32", "one_rank"),
                (3, 1, 4099, "float16", "sparse"),
                (4, 3, 83, "float32", "poison"),
                (4, 11, 97, "bfloat16", "integers"),
                (3, 2, 31, "float32", "integers"),
                (2, 37, 64, "bfloat16", "strided"),
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
    source="MPI: A Message-Passing Interface Standard 4.1, section 6.9.6; lower bound: Patarasuk and Yuan, 2009",
    baselines=("torch.distributed.all_reduce", "vllm custom_all_reduce", "nccl-tests all_reduce_perf"),
    family="comm",
    wire=wire,
    lossy=lossy,
)  # fmt: skip
