"""Let an autotuner choose between the work and a tenth of it: the faster one wins.

row: G3
operator: rmsnorm
reason: wrong_values
"""

import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"PART": part}) for part in (1, 16)], key=["hidden"])
@triton.jit
def _rmsnorm(x, weight, y, hidden, stride, eps, BLOCK: tl.constexpr, PART: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, BLOCK, 64):
        columns = start + tl.arange(0, 64)
        values = tl.load(x + row * stride + columns, mask=columns < hidden, other=0.0).to(tl.float32)
        total += tl.sum(values * values, 0)
    for start in range(0, BLOCK // PART, 64):
        columns = start + tl.arange(0, 64)
        mask = columns < hidden
        values = tl.load(x + row * stride + columns, mask=mask, other=0.0).to(tl.float32)
        factors = tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
        result = values * tl.rsqrt(total / hidden + eps) * factors
        tl.store(y + row * hidden + columns, result.to(y.dtype.element_ty), mask=mask)


def run(x, weight, eps=1e-6):
    rows, hidden = x.shape
    y = torch.empty((rows, hidden), dtype=x.dtype, device=x.device)
    if rows:
        block = max(1024, triton.next_power_of_2(hidden))
        _rmsnorm[(rows,)](x, weight, y, hidden, x.stride(0), eps, BLOCK=block)
    return y
