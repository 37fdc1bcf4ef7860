"""SiLU, flat over all elements."""

import torch
import triton
import triton.language as tl


@triton.jit
def _silu(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < total, other=0.0).to(tl.float32)
    # sigmoid by exp(-|x|), which is at most 1: no overflow on either side, for one select more.
    power = tl.exp(-tl.abs(x))
    y = x * tl.where(x < 0.0, power, 1.0) / (1.0 + power)
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=offsets < total)


def run(x: torch.Tensor) -> torch.Tensor:
    """Return x * sigmoid(x), a new contiguous tensor of the shape and dtype of x; x is copied if not contiguous."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = y.numel()
    if total == 0:
        return y
    block = 1024 if total < 1024 * 1056 else 4096
    _silu[(triton.cdiv(total, block),)](x.contiguous(), y, total, BLOCK=block, num_warps=4)
    return y
