"""Offline packing of buffers with known lifetimes into one arena: lowest free gap, with repair.

Protocol of ``workspace_plan``: ``run(sizes, first_use, last_use, alignment)`` returns ``(offsets, total_bytes)``.
Lifetimes are closed: buffers whose intervals share a step must not share a byte. A buffer of size 0 gets offset 0
and conflicts with nothing.
"""

import random
from collections.abc import Sequence

ROUNDS = 64
"""Most repairs of the order; each repacks all buffers."""


def run(
    sizes: Sequence[int], first_use: Sequence[int], last_use: Sequence[int], alignment: int = 512
) -> tuple[list[int], int]:
    """Place every buffer and say how large the arena must be.

    Args:
        sizes: Bytes of each buffer, at least 0.
        first_use: First step at which the buffer is written.
        last_use: Last step at which it is read, not before ``first_use``.
        alignment: Power of two in bytes; every offset is a multiple of it.

    Returns:
        Byte offset of each buffer, and the arena's size in bytes (a multiple of the alignment).
    """
    if alignment < 1 or alignment & (alignment - 1):
        raise ValueError("alignment must be a power of two")
    if not len(sizes) == len(first_use) == len(last_use):
        raise ValueError("sizes, first_use and last_use must be equally long")
    if any(size < 0 for size in sizes) or any(a > b for a, b in zip(first_use, last_use, strict=True)):
        raise ValueError("a size is negative or a lifetime ends before it starts")
    padded = [-(-size // alignment) * alignment for size in sizes]
    used = [i for i in range(len(sizes)) if padded[i]]
    bound = lower_bound(sizes, first_use, last_use, alignment)
    order = sorted(used, key=lambda i: (-padded[i], first_use[i] - last_use[i], i))  # large, then long-lived
    best = offsets, total = _pack(order, padded, first_use, last_use)
    draw = random.Random(0)  # fixed, so that a plan is reproducible
    for _ in range(ROUNDS):
        if best[1] <= bound:
            break
        # Whatever sticks out at the top was placed too late: give it another turn.
        highest = max(order, key=lambda i: offsets[i] + padded[i])
        order.remove(highest)
        order.insert(draw.randrange(len(order)) if order else 0, highest)
        offsets, total = _pack(order, padded, first_use, last_use)
        best = min(best, (offsets, total), key=lambda plan: plan[1])
    return best


def _pack(
    order: Sequence[int], padded: Sequence[int], first_use: Sequence[int], last_use: Sequence[int]
) -> tuple[list[int], int]:
    """Put each buffer into the lowest gap between those already placed that live with it."""
    offsets = [0] * len(padded)
    placed: list[int] = []
    for i in order:
        taken = sorted(
            (offsets[j], offsets[j] + padded[j])
            for j in placed
            if first_use[j] <= last_use[i] and first_use[i] <= last_use[j]
        )
        offset = 0
        for start, end in taken:
            if start - offset >= padded[i]:
                break
            offset = max(offset, end)
        offsets[i] = offset
        placed.append(i)
    return offsets, max((offsets[j] + padded[j] for j in placed), default=0)


def lower_bound(
    sizes: Sequence[int], first_use: Sequence[int], last_use: Sequence[int], alignment: int = 512
) -> int:
    """Return the most bytes alive at one step: no arena of any planner can be smaller.

    A live set only grows where a buffer starts, so looking at the starts is enough.
    """
    padded = [-(-size // alignment) * alignment for size in sizes]
    lives = list(zip(padded, first_use, last_use, strict=True))
    return max((sum(size for size, a, b in lives if a <= step <= b) for step in first_use), default=0)
