"""All-gather: every rank gets the rows of all ranks, in rank order; ranks may have different numbers of rows."""

from functools import partial
from typing import cast

import torch

from kb.validators.operators import ranks
from kb.validators.operators.spec import (
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


def reference(*given: Arguments) -> tuple[torch.Tensor, ...]:
    """Return all rows in float64, once a rank; ``given``: each rank's (x [its rows, hidden_size],)."""
    rows = torch.cat([cast(torch.Tensor, one[0]).to(torch.float64) for one in given])
    return tuple(rows.clone() for _ in given)


def condition(*given: Arguments) -> tuple[torch.Tensor, ...]:
    """Return S = 0: rows are moved, not computed, so they must arrive bit for bit."""
    return tuple(torch.zeros_like(one) for one in reference(*given))


def wire(*given: Arguments) -> Wire:
    """Every rank must get the rows of the others, and its own must leave it once.

    Args:
        given: As for ``reference``.
    """
    sizes = [one.numel() * one.itemsize for one in (cast(torch.Tensor, rank[0]) for rank in given)]
    total = sum(sizes)
    sent = tuple(size if len(sizes) > 1 else 0 for size in sizes)
    return Wire(sent, tuple(total - size for size in sizes), (len(sizes) - 1) * total)


def lossy(roundoff: float, *given: Arguments) -> tuple[torch.Tensor, ...]:
    """Every row is rounded on its way.

    Args:
        roundoff: Unit roundoff of the format on the wire.
        given: As for ``reference``.
    """
    return tuple(ranks.rounded(one, roundoff) for one in reference(*given))


def cost(axes: Axes, dtype: str) -> Cost:
    """Nothing is computed; every rank reads its rows and writes all of them."""
    world = axes["world_size"]
    return Cost(flops=0, essential_bytes=(1 + world) * axes["num_tokens"] * axes["hidden_size"] * itemsize(dtype))


def _draw(law: str, axes: Axes, dtype: str, generator: torch.Generator, *, skewed: bool = False) -> list[torch.Tensor]:
    world, rows = axes["world_size"], axes["num_tokens"]
    counts = [len(ranks.own_rows(rows, rank, world)) for rank in range(world)]
    if skewed:
        cuts = sorted(int(one) for one in torch.randint(0, rows + 1, (world - 1,), generator=generator))
        counts = [after - before for before, after in zip([0, *cuts], [*cuts, rows], strict=True)]
    return ranks.draw(law, [(count, axes["hidden_size"]) for count in counts], dtype, generator)


def _law(law: str, axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Draw the rows of every rank by a law of ``ranks.DRAWS``, numbers of rows differing by at most one."""
    return tuple((one,) for one in _draw(law, axes, dtype, generator))


def skewed(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows cut at random places: some ranks have most of them, some none."""
    return tuple((one,) for one in _draw("normal", axes, dtype, generator, skewed=True))


def strided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, but the rows are slices of wider ones."""
    return tuple((one,) for one in ranks.strided(_draw("normal", axes, dtype, generator)))


SPEC = Operator(
    name="all_gather",
    summary="y = rows of rank 0, then of rank 1, and so on, on every rank",
    signature="all_gather(x, group)",
    axes=("world_size", "num_tokens", "hidden_size"),
    inputs=(Buffer("x", ("num_tokens of this rank", "hidden_size"), doc="rows of this rank; their number may be 0"),),
    outputs=(Buffer("y", ("num_tokens", "hidden_size")),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=0, c_out=0, tiny=1e-300),
    cost=cost,
    laws={**{law: partial(_law, law) for law in ("normal", "mixed_scale", "poison", "sparse")}, "skewed": skewed,
          "strided": strided},
    workloads=(
        *ranks.workloads(
            (
                (2, 1, 1, "float32", "normal"),
                (4, 0, 64, "bfloat16", "normal"),
                (4, 3, 127, "bfloat16", "normal"),
                (3, 11, 1031, "float32", "mixed_scale"),
                (4, 37, 65, "bfloat16", "skewed"),
                (3, 7, 257, "float16", "skewed"),
                (2, 9, 101, "float32", "skewed"),
                (3, 13, 33, "float32", "poison"),
                (4, 64, 256, "bfloat16", "sparse"),
                (2, 17, 40, "float16", "strided"),
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
    source="MPI: A Message-Passing Interface Standard 4.1, section 6.7 (MPI_Allgatherv)",
    baselines=("torch.distributed.all_gather_into_tensor", "nccl-tests all_gather_perf"),
    family="comm",
    wire=wire,
    lossy=lossy,
)  # fmt: skip
