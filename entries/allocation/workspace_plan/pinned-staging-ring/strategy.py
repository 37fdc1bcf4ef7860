"""First-in, first-out placement of staging chunks in one pinned ring buffer.

Follows the ``workspace_plan`` protocol: a chunk is filled by the host at ``first_use`` and its copy is known to be
complete after ``last_use``. Space is reclaimed in the order of allocation only, as a ring must.
"""

from collections import deque
from collections.abc import Sequence


def run(
    sizes: Sequence[int], first_use: Sequence[int], last_use: Sequence[int], alignment: int = 256
) -> tuple[list[int], int]:
    """Find a ring that serves the trace without a stall.

    Args:
        sizes: Bytes of each chunk, at least 0.
        first_use: Step at which the host takes the chunk; equal steps in index order.
        last_use: Last step at which the copy engine may still read it.
        alignment: Power of two in bytes; 256 is what device allocations start on.

    Returns:
        Byte offset of each chunk, and the ring's capacity in bytes.
    """
    if alignment < 1 or alignment & (alignment - 1):
        raise ValueError("alignment must be a power of two")
    padded = [-(-size // alignment) * alignment for size in sizes]
    order = sorted((i for i in range(len(sizes)) if padded[i]), key=lambda i: (first_use[i], i))
    capacity = max((padded[i] for i in order), default=0)
    while True:
        offsets, missing = _try(padded, order, first_use, last_use, capacity)
        if not missing:
            return offsets, capacity
        capacity += missing


def _try(
    padded: Sequence[int], order: Sequence[int], first_use: Sequence[int], last_use: Sequence[int], capacity: int
) -> tuple[list[int], int]:
    """Return offsets and 0, or the bytes that were missing when the ring stalled."""
    offsets = [0] * len(padded)
    held: deque[int] = deque()
    head = 0
    for i in order:
        # A later chunk that is done must wait for an earlier one that is not: that is the price of a ring.
        while held and last_use[held[0]] < first_use[i]:
            held.popleft()
        if not held:
            head = 0
        tail = offsets[held[0]] if held else 0
        wrapped = bool(held) and head <= tail
        if wrapped:
            if tail - head < padded[i]:
                return offsets, padded[i] - (tail - head)
        elif capacity - head < padded[i]:
            # A chunk stays contiguous, so the rest of the lap is skipped.
            if tail < padded[i]:
                return offsets, min(padded[i] - (capacity - head), padded[i] - tail)
            head = 0
        offsets[i] = head
        held.append(i)
        head += padded[i]
    return offsets, 0
