"""Remembers the plan of a trace by all that it depends on, and computes it for every other.

operator: workspace_plan
"""

# mypy: ignore-errors

from functools import cache

LAWS = ("decode_step", "random_sizes")


def run(sizes, first_use, last_use, alignment):
    offsets, total = planned(tuple(sizes), tuple(first_use), tuple(last_use), alignment)
    return list(offsets), total


@cache
def planned(sizes, first_use, last_use, alignment):
    padded = [-(-size // alignment) * alignment for size in sizes]
    offsets, placed = [0] * len(sizes), []
    for i in sorted(range(len(sizes)), key=lambda k: -padded[k]):
        taken = sorted(
            (offsets[j], offsets[j] + padded[j])
            for j in placed
            if first_use[j] <= last_use[i] and first_use[i] <= last_use[j]
        )
        at = 0
        for start, end in taken:
            if start - at >= padded[i]:
                break
            at = max(at, end)
        offsets[i] = at
        placed.append(i)
    return offsets, max(offset + size for offset, size in zip(offsets, padded, strict=True))
