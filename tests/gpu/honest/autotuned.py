"""Triton's autotuner: reads clocks, allocates a flush buffer, calls the kernel often, and keeps its choice.

operator: rmsnorm
"""

import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({}, num_warps=warps) for warps in (2, 4, 8)], key=["hidden"])
@triton.jit
def _rmsnorm(x, weight, y, hidden, stride, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < hidden
    values = tl.load(x + row * stride + columns, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / hidden + eps)
    factors = tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + row * hidden + columns, (values * scale * factors).to(y.dtype.element_ty), mask=mask)


def run(x, weight, eps=1e-6):
    rows, hidden = x.shape
    y = torch.empty((rows, hidden), dtype=x.dtype, device=x.device)
    if rows:
        _rmsnorm[(rows,)](x, weight, y, hidden, x.stride(0), eps, BLOCK=triton.next_power_of_2(hidden))
    return y
