"""Read a row past the end of the weight and multiply it by nothing: right values, by luck of the neighbours.

row: A13
operator: rmsnorm
reason: bad_memory_access
sanitizer: memcheck
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rmsnorm(x, weight, y, hidden, stride, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < hidden
    values = tl.load(x + row * stride + columns, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / hidden + eps)
    factors = tl.load(weight + columns + (columns >= hidden) * 4096).to(tl.float32)
    tl.store(y + row * hidden + columns, (values * scale * factors).to(y.dtype.element_ty), mask=mask)


def run(x, weight, eps=1e-6):
    rows, hidden = x.shape
    y = torch.empty((rows, hidden), dtype=x.dtype, device=x.device)
    if rows:
        _rmsnorm[(rows,)](x, weight, y, hidden, x.stride(0), eps, BLOCK=2 * triton.next_power_of_2(hidden))
    return y
