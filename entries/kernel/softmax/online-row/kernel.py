"""Softmax, one or more whole rows a CTA in registers, or an online pass over rows too long for them."""

import torch
import triton
import triton.language as tl


@triton.jit
def _softmax_rows(x_ptr, y_ptr, stride_x, num_rows, num_classes, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    inside = (rows < num_rows)[:, None] & (cols < num_classes)[None, :]
    x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=float("-inf")).to(tl.float32)
    peak = tl.max(x, axis=1)
    power = tl.exp(x - tl.where(peak == float("-inf"), 0.0, peak)[:, None])
    total = tl.sum(power, axis=1)
    # A row with a NaN or +inf gets a NaN sum by itself; a row of -inf only sums to 0, and is NaN by definition.
    inverse = tl.where(total == 0.0, float("nan"), 1.0 / tl.where(total == 0.0, 1.0, total))
    y = power * inverse[:, None]
    tl.store(y_ptr + rows[:, None] * num_classes + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _softmax_online(x_ptr, y_ptr, stride_x, num_classes, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    # One running maximum and sum a lane: no reduction, and no barrier, inside the loop.
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, num_classes, BLOCK):
        inside = start + cols < num_classes
        x = tl.load(x_ptr + row * stride_x + start + cols, mask=inside, other=float("-inf")).to(tl.float32)
        new = tl.maximum(largest, x)
        # A lane that has seen only -inf must not turn into NaN yet: later values may be finite.
        base = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp(largest - base) + tl.exp(x - base)
        largest = new
    peak = tl.max(largest, axis=0)
    peak = tl.where(peak == float("-inf"), 0.0, peak)
    sum_all = tl.sum(total * tl.exp(largest - peak), axis=0)
    # A row of -inf only sums to 0 and is NaN by definition.
    inverse = tl.where(sum_all == 0.0, float("nan"), 1.0 / tl.where(sum_all == 0.0, 1.0, sum_all))
    for start in range(0, num_classes, BLOCK):
        inside = start + cols < num_classes
        x = tl.load(x_ptr + row * stride_x + start + cols, mask=inside, other=float("-inf")).to(tl.float32)
        y = tl.exp(x - peak) * inverse
        tl.store(y_ptr + row * num_classes + start + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def run(x: torch.Tensor) -> torch.Tensor:
    """Return softmax of x [num_tokens, num_classes] over the last axis, a new tensor like x; any row stride."""
    num_rows, num_classes = x.shape
    y = torch.empty((num_rows, num_classes), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x = x if x.stride(1) == 1 else x.contiguous()
    block = triton.next_power_of_2(num_classes)
    if block > 16384:
        _softmax_online[(num_rows,)](x, y, x.stride(0), num_classes, BLOCK=8192, num_warps=16)
        return y
    rows = min(max(1, 2048 // block), triton.next_power_of_2(max(1, num_rows // 528)))
    warps = min(16, max(1, rows * block // 512))
    _softmax_rows[(triton.cdiv(num_rows, rows),)](
        x, y, x.stride(0), num_rows, num_classes, ROWS=rows, BLOCK=block, num_warps=warps
    )
    return y
