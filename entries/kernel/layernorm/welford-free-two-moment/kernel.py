"""LayerNorm, whole rows in registers, several short rows a CTA, mean and variance in two passes over registers."""

import torch
import triton
import triton.language as tl


@triton.jit
def _layernorm_rows(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, num_rows, hidden_size, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    used = cols < hidden_size
    inside = (rows < num_rows)[:, None] & used[None, :]
    x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=used, other=0.0, eviction_policy="evict_last").to(tl.float32)
    bias = tl.load(bias_ptr + cols, mask=used, other=0.0, eviction_policy="evict_last").to(tl.float32)
    mean = tl.sum(x, axis=1) / hidden_size
    # Padding lanes would each add mean^2 to the variance.
    centred = tl.where(inside, x - mean[:, None], 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=1) / hidden_size + eps)
    y = centred * rstd[:, None] * weight[None, :] + bias[None, :]
    tl.store(y_ptr + rows[:, None] * hidden_size + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Normalise the rows of x [num_tokens, hidden_size <= 16384]; weight, bias [hidden_size]; a new tensor like x."""
    num_tokens, hidden_size = x.shape
    y = torch.empty((num_tokens, hidden_size), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x = x if x.stride(1) == 1 else x.contiguous()
    block = triton.next_power_of_2(hidden_size)
    # Short rows: up to 4096 elements a CTA of four warps, so that from four rows on each reduction stays in a warp;
    # fewer while the grid would not fill about 4 x 132 slots. Long rows: 16 elements a thread.
    rows = min(max(1, 4096 // block), triton.next_power_of_2(max(1, num_tokens // 528)))
    warps = min(16, max(1, block // 512)) if rows == 1 else min(4, max(1, rows * block // 512))
    _layernorm_rows[(triton.cdiv(num_tokens, rows),)](
        x, weight, bias, y, x.stride(0), num_tokens, hidden_size, eps, ROWS=rows, BLOCK=block, num_warps=warps
    )
    return y
