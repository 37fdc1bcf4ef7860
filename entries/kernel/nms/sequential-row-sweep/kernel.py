"""Greedy suppression in one CTA: boxes in registers, one sweep for each survivor."""

import torch
import triton
import triton.language as tl


@triton.jit
def _sweep(boxes_ptr, keep_ptr, num_boxes, threshold, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    inside = index < num_boxes
    left = tl.load(boxes_ptr + index * 4, mask=inside, other=0.0)
    top = tl.load(boxes_ptr + index * 4 + 1, mask=inside, other=0.0)
    right = tl.load(boxes_ptr + index * 4 + 2, mask=inside, other=0.0)
    bottom = tl.load(boxes_ptr + index * 4 + 3, mask=inside, other=0.0)
    area = (right - left) * (bottom - top)
    alive = inside
    best = tl.program_id(0)  # box 0 always survives
    while best < num_boxes:
        box = boxes_ptr + best * 4
        x0 = tl.load(box)
        y0 = tl.load(box + 1)
        x1 = tl.load(box + 2)
        y1 = tl.load(box + 3)
        wide = tl.maximum(tl.minimum(right, x1) - tl.maximum(left, x0), 0.0)
        high = tl.maximum(tl.minimum(bottom, y1) - tl.maximum(top, y0), 0.0)
        smaller = tl.minimum(area, (x1 - x0) * (y1 - y0))
        alive = alive & ((wide * high <= threshold * smaller) | (index <= best))
        # The next survivor: boxes removed in between cost nothing.
        best = tl.min(tl.where(alive & (index > best), index, BLOCK), axis=0)
    tl.store(keep_ptr + index, alive, mask=inside)


def run(boxes: torch.Tensor, threshold: float = 0.1) -> torch.Tensor:
    """Return keep, bool [num_boxes], for boxes float32 [num_boxes, 4] sorted by falling score."""
    count = boxes.shape[0]
    keep = torch.empty(count, dtype=torch.bool, device=boxes.device)
    if count == 0:
        return keep
    block = max(32, triton.next_power_of_2(count))
    _sweep[(1,)](boxes.contiguous(), keep, count, float(threshold), BLOCK=block, num_warps=max(1, block // 256))
    return keep
