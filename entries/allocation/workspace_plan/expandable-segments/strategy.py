"""Online placement in one growable virtual reservation, and in fixed segments for comparison.

Follows the ``workspace_plan`` protocol, but sees one step at a time: it never looks at a buffer's last use before
that step has come, as an allocator that serves live traffic.
"""

from collections.abc import Sequence

GRANULE = 2 << 20
"""Physical pages are mapped in pieces of this many bytes: the driver's granularity on current GPUs."""


def run(
    sizes: Sequence[int], first_use: Sequence[int], last_use: Sequence[int], alignment: int = 512
) -> tuple[list[int], int]:
    """Place buffers in arrival order; the arena grows in place and only at its end.

    Args:
        sizes: Bytes of each buffer, at least 0.
        first_use: Step at which it is allocated; equal steps are served in index order.
        last_use: Step after which it is free.
        alignment: Power of two in bytes.

    Returns:
        Byte offset of each buffer in the reservation, and the mapped bytes (a multiple of ``GRANULE``).
    """
    offsets, high = _simulate(sizes, first_use, last_use, alignment, segment_bytes=None)
    return offsets, -(-high // GRANULE) * GRANULE


def run_fixed_segments(
    sizes: Sequence[int],
    first_use: Sequence[int],
    last_use: Sequence[int],
    alignment: int = 512,
    *,
    segment_bytes: int = 20 << 20,
) -> tuple[list[int], int]:
    """Place the same trace in separate segments that no block may span, as without expandable segments.

    Args:
        sizes: As in ``run``.
        first_use: As in ``run``.
        last_use: As in ``run``.
        alignment: As in ``run``.
        segment_bytes: Size of a segment; a larger request gets a segment of its own size.

    Returns:
        Offsets in the concatenation of the segments, and the bytes of all segments.
    """
    return _simulate(sizes, first_use, last_use, alignment, segment_bytes=segment_bytes)


def _simulate(
    sizes: Sequence[int],
    first_use: Sequence[int],
    last_use: Sequence[int],
    alignment: int,
    *,
    segment_bytes: int | None,
) -> tuple[list[int], int]:
    if alignment < 1 or alignment & (alignment - 1):
        raise ValueError("alignment must be a power of two")
    padded = [-(-size // alignment) * alignment for size in sizes]
    offsets = [0] * len(sizes)
    free: list[tuple[int, int]] = []  # disjoint (start, end), sorted, never touching
    walls: set[int] = set()  # segment starts, across which free blocks do not merge
    live: list[int] = []
    high = 0
    for i in sorted((k for k in range(len(sizes)) if padded[k]), key=lambda k: (first_use[k], k)):
        for j in [j for j in live if last_use[j] < first_use[i]]:
            live.remove(j)
            free = _merge([*free, (offsets[j], offsets[j] + padded[j])], walls)
        fits = [block for block in free if block[1] - block[0] >= padded[i]]
        if fits:
            block = min(fits, key=lambda b: (b[1] - b[0], b[0]))  # best fit, then lowest address
        elif segment_bytes is None:
            # Grow in place: a free tail is extended rather than left behind.
            tail = next((b for b in free if b[1] == high), None)
            start = tail[0] if tail else high
            high = start + padded[i]
            if tail:
                free.remove(tail)
            block = (start, high)
            free.append(block)
        else:
            walls.add(high)
            block = (high, high + max(padded[i], segment_bytes))
            high = block[1]
            free.append(block)
        free.remove(block)
        offsets[i] = block[0]
        if block[0] + padded[i] < block[1]:
            free.append((block[0] + padded[i], block[1]))
        live.append(i)
    return offsets, high


def _merge(blocks: list[tuple[int, int]], walls: set[int]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(blocks):
        if merged and merged[-1][1] == start and start not in walls:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged
