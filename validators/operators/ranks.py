"""What the specs of communication share: how work is split over ranks, and draws that differ by rank in every trial.

A scheme that holds only because all ranks have the same input (a multiplication for an all-reduce, an identity for an
all-to-all) is no scheme, so no law here gives two ranks the same.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from kb.validators.operators.spec import DTYPES, Arguments, Axes, Law, Workload
from kb.validators.operators.spec import generator as seeded


@dataclass(frozen=True)
class Trial:
    """What the draw of one rank's tensor goes by."""

    shape: tuple[int, ...]
    rank: int
    world: int
    shared: int
    """A seed that all ranks of one trial share; another one in every trial."""


Draw = Callable[[Trial, torch.Generator], torch.Tensor]
"""Draws one rank's tensor, float32."""


def own_rows(rows: int, rank: int, world: int) -> range:
    """Return the rows that belong to a rank, as ``torch.tensor_split`` cuts: lengths differ by at most one."""
    base, more = divmod(rows, world)
    start = rank * base + min(rank, more)
    return range(start, start + base + (rank < more))


def roundings(terms: int) -> float:
    """Return how many unit roundoffs, in units of S, the partial sums of so many terms may be off.

    A scheme may send partial sums in the data's dtype, as a ring does: the k-th one is at most sqrt(k) S large, and is
    rounded once. The last sum is the output's own rounding.

    Args:
        terms: How many numbers are added; 1 or less is off by nothing.
    """
    return sum(math.sqrt(k) for k in range(2, terms))


def widened(scale: torch.Tensor, *, terms: int, dtype_roundoff: float, unit: float) -> torch.Tensor:
    """Return S such that a bound in units of float32 also holds for partial sums in the data's dtype.

    Args:
        scale: sqrt(sum of squares) over the ranks, float64, any shape.
        terms: How many numbers are added.
        dtype_roundoff: Unit roundoff of the dtype on the wire.
        unit: c_acc times the unit roundoff of the accumulation: what the bound multiplies S with.
    """
    return scale * (1 + roundings(terms) * dtype_roundoff / unit)


def rounded(value: torch.Tensor, roundoff: float) -> torch.Tensor:
    """Return by how much a tensor may be off that was rounded to a narrow format with scales of its own.

    A scale may be shared by the whole tensor, so what is 2^-14 of its largest value may vanish: in e4m3, whose largest
    value is 448 and whose smallest step is 2^-9, half a step is 2^-4 * 2^-14.8 of the largest.

    Args:
        value: float64, any shape.
        roundoff: Unit roundoff of the format.
    """
    largest = torch.nan_to_num(value.abs(), 0, 0, 0).max() if value.numel() else torch.zeros((), dtype=torch.float64)
    return roundoff * (value.abs() + 2.0**-14 * largest)


def normal(trial: Trial, generator: torch.Generator) -> torch.Tensor:
    """Noise of another scale on every rank, 1/2 … 2, so that no rank stands for another."""
    scale: float = 2.0 ** (2 * trial.rank / max(trial.world - 1, 1) - 1)
    return torch.randn(trial.shape, generator=generator) * scale


def mixed_scale(trial: Trial, generator: torch.Generator) -> torch.Tensor:
    """Noise that looks nominal at its beginning; each rank dominates another stretch of the rest by 2^6."""
    x = torch.randn(trial.shape, generator=generator)
    flat = x.view(-1)
    own = own_rows(max(flat.numel() - 4, 0), trial.rank, trial.world)
    flat[4 + own.start : 4 + own.stop] *= 64
    return x


def cancelling(trial: Trial, generator: torch.Generator) -> torch.Tensor:
    """Large terms that add up to little: what is left is 2^-5 of them, noise that only full precision carries."""
    common = torch.randn(trial.shape, generator=seeded(trial.shared))
    share = math.cos(2 * math.pi * trial.rank / trial.world)
    return 8 * share * common + torch.randn(trial.shape, generator=generator) / 4


def one_rank(trial: Trial, generator: torch.Generator) -> torch.Tensor:
    """One rank, any of them, holds nearly all energy: leaving it out changes everything."""
    loud = trial.shared % trial.world
    return torch.randn(trial.shape, generator=generator) * (2.0**5 if trial.rank == loud else 2.0**-3)


def sparse(trial: Trial, generator: torch.Generator) -> torch.Tensor:
    """One element in eight is not zero, at other places on every rank: sending those alone is no dense scheme."""
    x = torch.randn(trial.shape, generator=generator)
    keep = torch.rand(trial.shape, generator=generator) < 1 / 8
    return torch.where(keep, x, torch.zeros(()))


def poison(trial: Trial, generator: torch.Generator) -> torch.Tensor:
    """Noise with one NaN on each rank but rank 0: it must reach whoever is due it, and touch nothing else."""
    x = torch.randn(trial.shape, generator=generator)
    if trial.rank and x.numel() > trial.world:
        x.view(-1)[int(torch.randint(x.numel(), (1,), generator=generator))] = torch.nan
    return x


def integers(trial: Trial, generator: torch.Generator) -> torch.Tensor:
    """Whole numbers -16 … 16: every partial sum of up to eight ranks is a number of every format, in any order."""
    return torch.randint(-16, 17, trial.shape, generator=generator).to(torch.float32)


DRAWS: Mapping[str, Draw] = {
    "normal": normal,
    "mixed_scale": mixed_scale,
    "cancelling": cancelling,
    "one_rank": one_rank,
    "sparse": sparse,
    "poison": poison,
    "integers": integers,
}
"""Law to the draw of one rank's tensor."""


def draw(law: str, shapes: Sequence[tuple[int, ...]], dtype: str, generator: torch.Generator) -> list[torch.Tensor]:
    """Draw one tensor a rank.

    Args:
        law: A key of ``DRAWS``.
        shapes: The shape of each rank's tensor; as many as there are ranks.
        dtype: Name of the dtype that they are rounded to.
        generator: Source of randomness.
    """
    shared = int(torch.randint(2**31, (1,), generator=generator))
    made = (Trial(shape, rank, len(shapes), shared) for rank, shape in enumerate(shapes))
    return [DRAWS[law](trial, generator).to(DTYPES[dtype]) for trial in made]


def strided(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Make the same tensors slices of wider ones, as the output of a fused projection is."""
    made = []
    for one in tensors:
        wide = one.new_zeros(*one.shape[:-1], one.shape[-1] + 24)
        wide[..., 8 : 8 + one.shape[-1]] = one
        made.append(wide[..., 8 : 8 + one.shape[-1]])
    return made


def _summands(law: str, axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    shapes = [(axes["num_tokens"], axes["hidden_size"])] * axes["world_size"]
    return tuple((one,) for one in draw(law, shapes, dtype, generator))


def _strided_summands(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal``, but the rows are slices of wider ones."""
    shapes = [(axes["num_tokens"], axes["hidden_size"])] * axes["world_size"]
    return tuple((one,) for one in strided(draw("normal", shapes, dtype, generator)))


SUMMANDS: Mapping[str, Law] = {**{law: partial(_summands, law) for law in DRAWS}, "strided": _strided_summands}
"""Laws of collectives that sum one tensor [num_tokens, hidden_size] of every rank."""


def workloads(
    rows: Sequence[tuple[int, int, int, str, str]], fixed: Axes | None = None, *, first: str = "num_tokens"
) -> tuple[Workload, ...]:
    """Make awkward workloads from (world_size, rows, hidden_size, dtype, law).

    Args:
        rows: One workload each.
        fixed: Axes that all of them share.
        first: Name of the axis that counts rows.
    """
    return tuple(
        Workload({"world_size": world, first: count, "hidden_size": hidden, **(fixed or {})}, dtype, law=law)
        for world, count, hidden, dtype, law in rows
    )
