"""Let a block begin where another ends in the same step: the kernel reads one and writes the other.

row: K5
operator: workspace_plan
reason: overlapping_blocks
"""

# mypy: ignore-errors

LAWS = ("decode_step",)


def run(sizes, first_use, last_use, alignment):
    padded = [-(-size // alignment) * alignment for size in sizes]
    offsets, placed = [0] * len(sizes), []
    for i in sorted(range(len(sizes)), key=lambda k: -padded[k]):
        taken = sorted(
            (offsets[j], offsets[j] + padded[j])
            for j in placed
            if first_use[j] < last_use[i] and first_use[i] < last_use[j]
        )
        at = 0
        for start, end in taken:
            if start - at >= padded[i]:
                break
            at = max(at, end)
        offsets[i] = at
        placed.append(i)
    return offsets, max(offset + size for offset, size in zip(offsets, padded, strict=True))
