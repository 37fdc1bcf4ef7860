"""Residual add and RMSNorm in one pass, one CTA a row."""

import torch
import triton
import triton.language as tl


@triton.jit
def _fused_add_rmsnorm(
    x_ptr, residual_ptr, weight_ptr, y_ptr, residual_out_ptr, stride_x, stride_residual, hidden_size, eps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < hidden_size
    # The weight does not depend on the reduction: asked for first, its latency hides behind the two rows.
    weight = tl.load(weight_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_last")
    x = tl.load(x_ptr + row * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + row * stride_residual + cols, mask=inside, other=0.0).to(tl.float32)
    total = x + residual
    tl.store(
        residual_out_ptr + row * hidden_size + cols, total.to(residual_out_ptr.dtype.element_ty), mask=inside
    )
    rstd = 1.0 / tl.sqrt(tl.sum(total * total, axis=0) / hidden_size + eps)
    y = total * rstd * weight.to(tl.float32)
    tl.store(y_ptr + row * hidden_size + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def run(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (rmsnorm(x + residual) * weight, x + residual) as new tensors.

    x and residual [num_tokens, hidden_size], any row strides; weight [hidden_size]. The norm sees the float32 sum.
    """
    num_tokens, hidden_size = x.shape
    y = torch.empty((num_tokens, hidden_size), dtype=x.dtype, device=x.device)
    residual_out = torch.empty_like(y)
    if y.numel() == 0:
        return y, residual_out
    x = x if x.stride(1) == 1 else x.contiguous()
    residual = residual if residual.stride(1) == 1 else residual.contiguous()
    block = triton.next_power_of_2(hidden_size)
    # 16 elements a thread of each input: 2 x 2 loads of 16 bytes in flight for bfloat16.
    warps = min(16, max(1, block // 512))
    _fused_add_rmsnorm[(num_tokens,)](
        x, residual, weight, y, residual_out, x.stride(0), residual.stride(0), hidden_size, eps,
        BLOCK=block, num_warps=warps,
    )  # fmt: skip
    return y, residual_out
