"""Two kernels with a scratch buffer between them that is kept from call to call and written before it is read.

operator: rmsnorm
sanitizer: memcheck, racecheck, initcheck
"""

import torch
import triton
import triton.language as tl

_SCRATCH = {}


@triton.jit
def _scales(x, scratch, hidden, stride, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + columns, mask=columns < hidden, other=0.0).to(tl.float32)
    tl.store(scratch + row, tl.rsqrt(tl.sum(values * values, 0) / hidden + eps))


@triton.jit
def _apply(x, weight, scratch, y, hidden, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < hidden
    values = tl.load(x + row * stride + columns, mask=mask, other=0.0).to(tl.float32)
    factors = tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
    result = values * tl.load(scratch + row) * factors
    tl.store(y + row * hidden + columns, result.to(y.dtype.element_ty), mask=mask)


def run(x, weight, eps=1e-6):
    rows, hidden = x.shape
    y = torch.empty((rows, hidden), dtype=x.dtype, device=x.device)
    if not rows:
        return y
    if _SCRATCH.get("scales") is None or _SCRATCH["scales"].numel() < rows:
        _SCRATCH["scales"] = torch.empty(max(rows, 1024), dtype=torch.float32, device=x.device)
    scratch, block = _SCRATCH["scales"], triton.next_power_of_2(hidden)
    _scales[(rows,)](x, scratch, hidden, x.stride(0), eps, BLOCK=block)
    _apply[(rows,)](x, weight, scratch, y, hidden, x.stride(0), BLOCK=block)
    return y
