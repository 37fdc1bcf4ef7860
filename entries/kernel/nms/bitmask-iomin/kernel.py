"""Greedy suppression in two launches: all pairs as bits, then one program that walks the rows 32 at a time."""

import torch
import triton
import triton.language as tl


@triton.jit
def _pair_bits(boxes_ptr, bits_ptr, num_boxes, words, threshold, BLOCK_I: tl.constexpr, WORDS: tl.constexpr):
    """Write, for BLOCK_I boxes i, WORDS words of bits: bit j is set if i, when kept, removes a later j."""
    first_i = tl.program_id(0) * BLOCK_I
    first_j = tl.program_id(1) * WORDS * 32
    if first_j + WORDS * 32 <= first_i:
        return  # all pairs lie below the diagonal; these words are never read
    i = first_i + tl.arange(0, BLOCK_I)
    j = first_j + tl.arange(0, WORDS * 32)
    in_i = i < num_boxes
    in_j = j < num_boxes
    left_i = tl.load(boxes_ptr + i * 4, mask=in_i, other=0.0)[:, None]
    top_i = tl.load(boxes_ptr + i * 4 + 1, mask=in_i, other=0.0)[:, None]
    right_i = tl.load(boxes_ptr + i * 4 + 2, mask=in_i, other=0.0)[:, None]
    bottom_i = tl.load(boxes_ptr + i * 4 + 3, mask=in_i, other=0.0)[:, None]
    left_j = tl.load(boxes_ptr + j * 4, mask=in_j, other=0.0)[None, :]
    top_j = tl.load(boxes_ptr + j * 4 + 1, mask=in_j, other=0.0)[None, :]
    right_j = tl.load(boxes_ptr + j * 4 + 2, mask=in_j, other=0.0)[None, :]
    bottom_j = tl.load(boxes_ptr + j * 4 + 3, mask=in_j, other=0.0)[None, :]
    wide = tl.maximum(tl.minimum(right_i, right_j) - tl.maximum(left_i, left_j), 0.0)
    high = tl.maximum(tl.minimum(bottom_i, bottom_j) - tl.maximum(top_i, top_j), 0.0)
    smaller = tl.minimum((right_i - left_i) * (bottom_i - top_i), (right_j - left_j) * (bottom_j - top_j))
    hit = (wide * high > threshold * smaller) & (j[None, :] > i[:, None])
    place = (tl.arange(0, WORDS * 32) % 32)[None, :]
    bits = tl.where(hit, tl.full((BLOCK_I, WORDS * 32), 1, tl.int32) << place, 0)
    packed = tl.sum(tl.reshape(bits, (BLOCK_I, WORDS, 32)), axis=2)  # the bits are distinct: a sum is an OR
    word = tl.program_id(1) * WORDS + tl.arange(0, WORDS)
    keep = in_i[:, None] & (word < words)[None, :]
    tl.store(bits_ptr + i[:, None] * words + word[None, :], packed, mask=keep)


@triton.jit
def _walk_rows(bits_ptr, keep_ptr, num_boxes, words, BLOCK_W: tl.constexpr):
    """Decide the boxes in order; `removed` holds one bit a box in registers."""
    lanes = tl.arange(0, 32)
    word = tl.arange(0, BLOCK_W)
    removed = tl.zeros((BLOCK_W,), dtype=tl.int32)
    for w in range(0, words):
        now = tl.sum(tl.where(word == w, removed, 0), axis=0)
        for b in tl.static_range(32):  # the loads do not depend on `now`, so all 32 are in flight together
            row = w * 32 + b
            later = tl.load(bits_ptr + row * words + w, mask=row < num_boxes, other=0)
            now = tl.where(((now >> b) & 1) == 0, now | later, now)
        index = w * 32 + lanes
        tl.store(keep_ptr + index, ((now >> lanes) & 1) == 0, mask=index < num_boxes)
        for b in tl.static_range(32):
            row = w * 32 + b
            # Words up to w are decided. A removed row starts behind the last word, so that it loads nothing.
            start = tl.where((((now >> b) & 1) == 0) & (row < num_boxes), w, words)
            removed |= tl.load(bits_ptr + row * words + word, mask=(word > start) & (word < words), other=0)


def run(boxes: torch.Tensor, threshold: float = 0.1) -> torch.Tensor:
    """Return keep, bool [num_boxes], for boxes float32 [num_boxes, 4] sorted by falling score; scratch num_boxes^2 / 8 bytes."""
    count = boxes.shape[0]
    keep = torch.empty(count, dtype=torch.bool, device=boxes.device)
    if count == 0:
        return keep
    boxes = boxes.contiguous()
    words = triton.cdiv(count, 32)
    bits = torch.empty((count, words), dtype=torch.int32, device=boxes.device)
    block_i, per_tile = 32, 4
    _pair_bits[(triton.cdiv(count, block_i), triton.cdiv(words, per_tile))](
        boxes, bits, count, words, float(threshold), BLOCK_I=block_i, WORDS=per_tile, num_warps=4
    )
    block_w = triton.next_power_of_2(words)
    _walk_rows[(1,)](bits, keep, count, words, BLOCK_W=block_w, num_warps=1 if block_w <= 64 else 4)
    return keep
