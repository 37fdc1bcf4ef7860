"""Offline packing by a portfolio: several orders of the blocks, each placed by lowest and by tightest gap; best wins.

Protocol of ``workspace_plan``, offline: ``run(sizes, first_use, last_use, alignment)`` returns ``(offsets, total)``.
"""

from collections.abc import Callable, Sequence


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
        Byte offset of each buffer, and the arena's size in bytes.
    """
    if alignment < 1 or alignment & (alignment - 1):
        raise ValueError("alignment must be a power of two")
    if any(a > b for a, b in zip(first_use, last_use, strict=True)):
        raise ValueError("a lifetime ends before it starts")
    padded = [-(-size // alignment) * alignment for size in sizes]
    used = [i for i in range(len(sizes)) if padded[i]]
    meets = _meets(used, first_use, last_use)
    # What lives with much is hard to place late, whatever its own size.
    weight = {i: padded[i] + sum(padded[j] for j in meets[i]) for i in used}
    length = {i: last_use[i] - first_use[i] + 1 for i in used}
    keys: tuple[Callable[[int], tuple[int, ...]], ...] = (
        lambda i: (-padded[i], -length[i], i),
        lambda i: (-padded[i] * length[i], i),
        lambda i: (-length[i], -padded[i], i),
        lambda i: (-weight[i], -padded[i], i),
        lambda i: (first_use[i], -padded[i], i),
    )
    bound = max((sum(padded[j] for j in used if first_use[j] <= s <= last_use[j]) for s in set(first_use)), default=0)
    best: tuple[list[int], int] | None = None
    for key in keys:
        for tightest in (False, True):
            plan = _pack(sorted(used, key=key), padded, meets, len(sizes), tightest=tightest)
            if best is None or plan[1] < best[1]:
                best = plan
            if best[1] <= bound:
                return best
    return best if best is not None else ([0] * len(sizes), 0)


def _meets(used: list[int], first_use: Sequence[int], last_use: Sequence[int]) -> dict[int, list[int]]:
    """Return for each buffer those that live at the same time; one sweep over the starts."""
    found: dict[int, list[int]] = {i: [] for i in used}
    alive: list[int] = []
    for i in sorted(used, key=lambda k: first_use[k]):
        alive = [j for j in alive if last_use[j] >= first_use[i]]
        for j in alive:
            found[i].append(j)
            found[j].append(i)
        alive.append(i)
    return found


def _pack(
    order: list[int], padded: list[int], meets: dict[int, list[int]], count: int, *, tightest: bool
) -> tuple[list[int], int]:
    offsets = [0] * count
    placed: set[int] = set()
    total = 0
    for i in order:
        taken = sorted((offsets[j], offsets[j] + padded[j]) for j in meets[i] if j in placed)
        at, best, gap_end = 0, -1, 0
        for start, end in taken:
            gap = start - at
            if gap >= padded[i] and (best < 0 or gap < gap_end - best):
                best, gap_end = at, start
                if not tightest:
                    break
            at = max(at, end)
        offsets[i] = best if best >= 0 else at
        placed.add(i)
        total = max(total, offsets[i] + padded[i])
    return offsets, total
