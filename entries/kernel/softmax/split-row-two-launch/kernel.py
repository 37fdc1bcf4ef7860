"""Softmax over a vocabulary: every row split over many CTAs, two launches."""

import torch
import triton
import triton.language as tl


@triton.jit
def _partial(x_ptr, peak_ptr, total_ptr, stride_x, num_classes, chunk, splits, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    split = tl.program_id(0)
    end = tl.minimum((split + 1) * chunk, num_classes)
    cols = tl.arange(0, BLOCK)
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(split * chunk, end, BLOCK):
        inside = start + cols < end
        x = tl.load(x_ptr + row * stride_x + start + cols, mask=inside, other=float("-inf")).to(tl.float32)
        new = tl.maximum(largest, x)
        base = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp(largest - base) + tl.exp(x - base)
        largest = new
    peak = tl.max(largest, axis=0)
    base = tl.where(peak == float("-inf"), 0.0, peak)
    tl.store(peak_ptr + row * splits + split, peak)
    tl.store(total_ptr + row * splits + split, tl.sum(total * tl.exp(largest - base), axis=0))


@triton.jit
def _finish(
    x_ptr, y_ptr, peak_ptr, total_ptr, stride_x, num_classes, splits, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    # Backwards: the rows that the first launch read last are still in L2.
    row = (tl.num_programs(1) - 1 - tl.program_id(1)).to(tl.int64)
    part = tl.arange(0, PARTS)
    peaks = tl.load(peak_ptr + row * splits + part, mask=part < splits, other=float("-inf"))
    totals = tl.load(total_ptr + row * splits + part, mask=part < splits, other=0.0)
    peak = tl.max(peaks, axis=0)
    peak = tl.where(peak == float("-inf"), 0.0, peak)
    total = tl.sum(totals * tl.exp(peaks - peak), axis=0)
    # A row of -inf only sums to 0 and is NaN by definition.
    inverse = tl.where(total == 0.0, float("nan"), 1.0 / tl.where(total == 0.0, 1.0, total))
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < num_classes, other=float("-inf")).to(tl.float32)
    y = tl.exp(x - peak) * inverse
    tl.store(y_ptr + row * num_classes + cols, y.to(y_ptr.dtype.element_ty), mask=cols < num_classes)


def run(x: torch.Tensor) -> torch.Tensor:
    """Return softmax of x [num_tokens <= 65535, num_classes] over the last axis, a new tensor like x.

    Scratch: two float32 a row and split, at most 256 splits a row.
    """
    num_rows, num_classes = x.shape
    y = torch.empty((num_rows, num_classes), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x = x if x.stride(1) == 1 else x.contiguous()
    tile = 4096 if num_rows * triton.cdiv(num_classes, 4096) >= 264 else 2048
    # About 4 x 132 CTAs over all rows, each with whole tiles.
    splits = min(256, triton.cdiv(num_classes, tile), max(1, triton.cdiv(528, num_rows)))
    chunk = triton.cdiv(triton.cdiv(num_classes, splits), tile) * tile
    splits = triton.cdiv(num_classes, chunk)
    partial = torch.empty((2, num_rows * splits), dtype=torch.float32, device=x.device)
    _partial[(splits, num_rows)](
        x, partial[0], partial[1], x.stride(0), num_classes, chunk, splits, BLOCK=tile, num_warps=8
    )
    _finish[(triton.cdiv(num_classes, tile), num_rows)](
        x, y, partial[0], partial[1], x.stride(0), num_classes, splits,
        PARTS=triton.next_power_of_2(splits), BLOCK=tile, num_warps=8,
    )  # fmt: skip
    return y
