"""Connected components by runs, union with an atomic minimum, and pointer jumping; no host loop."""

import torch
import triton
import triton.language as tl


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def _start_runs(mask_ptr, parent_ptr, height, width, BLOCK: tl.constexpr):
    """Point every pixel of a row at the first pixel of its run."""
    row = tl.program_id(0)
    image = tl.program_id(1).to(tl.int64) * height * width
    col = tl.arange(0, BLOCK)
    inside = col < width
    index = row * width + col
    on = tl.load(mask_ptr + image + index, mask=inside, other=0) != 0
    start = tl.associative_scan(tl.where(on, 0, col + 1), 0, _larger)
    tl.store(parent_ptr + image + index, row * width + tl.minimum(start, col), mask=inside)


@triton.jit
def _unite(parent, a, b, on):
    """Join the trees of a and b in every lane where `on` is 1; parent[x] <= x holds throughout."""
    while tl.max(on, axis=0) > 0:
        high = tl.maximum(a, b)
        low = tl.minimum(a, b)
        above = tl.load(parent + high, mask=on > 0, other=0, cache_modifier=".cg")
        root = (above == high) & (on > 0)
        old = tl.atomic_min(parent + high, low, mask=root, sem="relaxed")
        # Not a root: climb. A root that somebody else moved meanwhile: go on from where it points now.
        upper = tl.where(root, old, above)
        linked = root & (old == high)
        on = tl.where(linked | (upper == low), 0, on)
        a = upper
        b = low


@triton.jit
def _merge_rows(mask_ptr, parent_ptr, height, width, BLOCK: tl.constexpr):
    """Unite the runs of a row with those of the row above; one union for each pair of touching runs."""
    row = tl.program_id(0) + 1
    image = tl.program_id(1).to(tl.int64) * height * width
    col = tl.arange(0, BLOCK)
    inside = col < width
    has_left = inside & (col > 0)
    has_right = col + 1 < width
    index = row * width + col
    here = mask_ptr + image + index
    on = tl.load(here, mask=inside, other=0) != 0
    left = tl.load(here - 1, mask=has_left, other=0) != 0
    right = tl.load(here + 1, mask=has_right, other=0) != 0
    up = tl.load(here - width, mask=inside, other=0) != 0
    up_left = tl.load(here - width - 1, mask=has_left, other=0) != 0
    up_right = tl.load(here - width + 1, mask=has_right, other=0) != 0
    parent = parent_ptr + image
    start = tl.load(parent + index, mask=inside, other=0)
    # Straight up, unless the pixel to the left joins the same two runs; diagonally left only where neither joins them.
    straight = on & up & ((left & up_left) == 0)
    diagonal = on & (up == 0) & up_left & (left == 0)
    other = index - width - tl.where(diagonal, 1, 0)
    pair = straight | diagonal
    target = tl.load(parent + other, mask=pair, other=0, cache_modifier=".cg")
    _unite(parent, start, target, tl.where(pair & (start != target), 1, 0))
    pair = on & (up == 0) & up_right & (right == 0)
    target = tl.load(parent + index - width + 1, mask=pair, other=0, cache_modifier=".cg")
    _unite(parent, start, target, tl.where(pair & (start != target), 1, 0))


@triton.jit
def _flatten(mask_ptr, parent_ptr, label_ptr, height, width, BLOCK: tl.constexpr):
    """Follow every pixel to its root and write labels; runs shorten their own pointers, which halves others' ways."""
    row = tl.program_id(0)
    image = tl.program_id(1).to(tl.int64) * height * width
    col = tl.arange(0, BLOCK)
    inside = col < width
    index = row * width + col
    parent = parent_ptr + image
    on = tl.load(mask_ptr + image + index, mask=inside, other=0) != 0
    left = tl.load(mask_ptr + image + index - 1, mask=inside & (col > 0), other=0) != 0
    first = on & (left == 0)
    at = tl.load(parent + index, mask=on, other=0)
    moving = tl.where(on, 1, 0)
    while tl.max(moving, axis=0) > 0:
        above = tl.load(parent + at, mask=moving > 0, other=0, cache_modifier=".cg")
        moving = tl.where(above == at, 0, moving)
        at = tl.where(moving > 0, above, at)
        tl.store(parent + index, at, mask=first & (moving > 0))
    tl.store(label_ptr + image + index, tl.where(on, at + 1, 0), mask=inside)


def run(mask: torch.Tensor) -> torch.Tensor:
    """Label mask [batch, height, width], bool or uint8; returns int32 of that shape; scratch 4 bytes a pixel."""
    batch, height, width = mask.shape
    labels = torch.empty((batch, height, width), dtype=torch.int32, device=mask.device)
    if labels.numel() == 0:
        return labels
    mask = mask.contiguous().view(torch.uint8)
    parent = torch.empty_like(labels)
    block = triton.next_power_of_2(width)
    warps = min(8, max(1, block // 128))
    _start_runs[(height, batch)](mask, parent, height, width, BLOCK=block, num_warps=warps)
    if height > 1:
        _merge_rows[(height - 1, batch)](mask, parent, height, width, BLOCK=block, num_warps=warps)
    _flatten[(height, batch)](mask, parent, labels, height, width, BLOCK=block, num_warps=warps)
    return labels
