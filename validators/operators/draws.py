"""Draws that the input laws of several operators share.

Each is against one way to get past a judge: a probe of the first values that decides which path is taken, a step that
only some inputs need, a shortcut for the structure of the usual draw, or an error that a bound has to admit.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import torch

from kb.validators.operators.spec import DTYPES
from kb.validators.operators.spec import generator as seeded

_WIDE = 1 << 24
"""Elements from which noise is drawn by several threads: one takes seconds for the weights of many experts."""


def integers(shape: tuple[int, ...], generator: torch.Generator, most: int = 2) -> torch.Tensor:
    """Draw whole numbers -most … most, float32: sums of some thousand products are exact in float32 in any order."""
    return torch.randint(-most, most + 1, shape, generator=generator).to(torch.float32)


def weights(
    shape: tuple[int, int, int], scale: torch.Tensor | float, dtype: str, generator: torch.Generator
) -> torch.Tensor:
    """Draw the weights of many experts; equal states of the generator give equal weights on every machine.

    Args:
        shape: [experts, rows, columns].
        scale: What the noise is multiplied by; [experts, 1, 1], or one number.
        dtype: Of the result.
        generator: Source of randomness.
    """
    if shape[0] * shape[1] * shape[2] < _WIDE:
        return (torch.randn(shape, generator=generator) * scale).to(DTYPES[dtype])
    made = torch.empty(shape, dtype=DTYPES[dtype])
    factors = scale if isinstance(scale, torch.Tensor) else torch.full((shape[0], 1, 1), scale)
    seeds = torch.randint(0, 1 << 62, (shape[0],), generator=generator).tolist()

    def draw(expert: int) -> None:
        made[expert] = torch.randn(shape[1:], generator=seeded(seeds[expert])) * factors[expert]

    with ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1))) as pool:
        list(pool.map(draw, range(shape[0])))
    return made


def signs(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Draw -1, 0 or 1, two thirds not zero, float32.

    A sum of k products of two such draws has a deviation of 0.67 sqrt(k): up to k = 1500 it stays below 256 by nine
    deviations, so that it is a bfloat16 too and no store can round it.
    """
    return integers(shape, generator, 1)


def mixed(shape: tuple[int, ...], generator: torch.Generator, *, spread: int = 8, tail: int = 4) -> torch.Tensor:
    """Draw noise whose beginning looks nominal and whose rest does not, float32.

    Args:
        shape: The last axis is a row.
        generator: Source of randomness.
        spread: Rows have the scales 2^-spread … 2^spread; the first one has 1.
        tail: The last eighth of every row is 2^tail times the rest (not where a row is shorter than eight).
    """
    lead = (*shape[:-1], 1)
    exponent = torch.randint(-spread, spread + 1, lead, generator=generator).to(torch.float32)
    exponent.view(-1)[:1] = 0
    x = torch.randn(shape, generator=generator) * torch.exp2(exponent)
    x[..., shape[-1] - shape[-1] // 8 :] *= 2.0**tail
    return x


def structured(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Draw rows of one structure each, float32, in turn from a random start: constant, sorted, nearly empty, paired.

    Constant: one value throughout. Sorted: rising noise. Nearly empty: zero but for its last eighth (at least one
    element). Paired: every value next to its negative, so that sums vanish.
    """
    x = torch.randn(shape, generator=generator)
    rows = x.view(-1, shape[-1])
    first = int(torch.randint(0, 4, (1,), generator=generator))
    keep = max(1, shape[-1] // 8)
    half = shape[-1] // 2
    for row in range(rows.shape[0]):
        kind = (first + row) % 4
        if kind == 0:
            rows[row] = rows[row, :1].clone()
        elif kind == 1:
            rows[row] = rows[row].sort().values
        elif kind == 2:
            rows[row, :-keep] = 0
        else:
            rows[row, 1 : 2 * half : 2] = -rows[row, 0 : 2 * half : 2]
    return x


def poisoned(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Put one NaN into about every third row of x, in place, but never into all rows if there are several."""
    rows = x.view(-1, x.shape[-1])
    if x.numel():
        at = torch.randint(0, x.shape[-1], (rows.shape[0],), generator=generator)
        first = int(torch.randint(0, 3, (1,), generator=generator)) % rows.shape[0]
        for row in range(first, rows.shape[0], 3):
            rows[row, at[row]] = torch.nan
    return x


def epsilon(generator: torch.Generator) -> float:
    """Draw what a norm adds below its root: 1e-6 or 1e-5, which models use, or 1e-4 or 1e-3, which no row can hide."""
    return (1e-6, 1e-5, 1e-4, 1e-3)[int(torch.randint(0, 4, (1,), generator=generator))]


def extremes(
    shape: tuple[int, ...], dtype: str, generator: torch.Generator, *, largest: float | None = None
) -> torch.Tensor:
    """Draw the corners of a format, in that format, with either sign.

    Zeros of both signs, subnormals, the smallest normal number, where exp(x) and exp(-x) leave float32 or reach zero
    (87 … 104) and where they leave float16 (11 … 17), and large finite numbers.

    Args:
        shape: Any.
        dtype: Name of a floating format.
        generator: Source of randomness.
        largest: Largest magnitude; None: half the largest of the format.
    """
    info = torch.finfo(DTYPES[dtype])
    top = info.max / 2 if largest is None else largest
    corners = [0.0, info.smallest_normal, info.smallest_normal / 4, 1.0, top, top / 3]
    corners += [one for one in (11.0, 17.0, 87.0, 88.5, 89.0, 103.0, 104.5, 2000.0) if one <= top]
    table = torch.tensor(corners, dtype=torch.float64)
    pick = table[torch.randint(0, len(corners), shape, generator=generator)]
    wobble = 1 + 0.1 * torch.rand(shape, generator=generator, dtype=torch.float64)
    sign = 1 - 2 * torch.randint(0, 2, shape, generator=generator).to(torch.float64)
    return ((pick * wobble).clamp(max=top) * sign).to(DTYPES[dtype])
