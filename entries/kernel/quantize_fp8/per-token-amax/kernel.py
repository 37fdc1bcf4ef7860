"""Per-row FP8 quantisation; short rows (groups of 128) share a CTA, long rows are read twice."""

import torch
import triton
import triton.language as tl


@triton.jit
def _quantize_rows(x_ptr, q_ptr, scale_ptr, stride_x, num_rows, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    inside = (rows < num_rows)[:, None] & (cols < width)[None, :]
    x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
    amax = tl.maximum(tl.max(tl.abs(x), axis=1), 1e-10)
    # One division a row; the product may pass 448 by an ulp, and beyond 464 a non-saturating cast gives NaN.
    q = tl.minimum(tl.maximum(x * (448.0 / amax)[:, None], -448.0), 448.0)
    tl.store(q_ptr + rows[:, None] * width + cols[None, :], q.to(q_ptr.dtype.element_ty), mask=inside)
    tl.store(scale_ptr + rows, amax / 448.0, mask=rows < num_rows)


@triton.jit
def _quantize_long_row(x_ptr, q_ptr, scale_ptr, stride_x, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    largest = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        x = tl.load(x_ptr + row * stride_x + start + cols, mask=start + cols < width, other=0.0)
        largest = tl.maximum(largest, tl.abs(x.to(tl.float32)))
    amax = tl.maximum(tl.max(largest, axis=0), 1e-10)
    factor = 448.0 / amax
    for start in range(0, width, BLOCK):
        inside = start + cols < width
        x = tl.load(x_ptr + row * stride_x + start + cols, mask=inside, other=0.0).to(tl.float32)
        q = tl.minimum(tl.maximum(x * factor, -448.0), 448.0)
        tl.store(q_ptr + row * width + start + cols, q.to(q_ptr.dtype.element_ty), mask=inside)
    tl.store(scale_ptr + row, amax / 448.0)


def run(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (q float8_e4m3fn like x, scale float32 [num_tokens]) with x ~ q * scale; x [num_tokens, hidden_size]."""
    num_rows, width = x.shape
    # The CPU interpreter rounds FP8 wrongly (a carry out of the mantissa is lost), so there torch does the last cast.
    stored = torch.float8_e4m3fn if x.is_cuda else torch.float32
    q = torch.empty((num_rows, width), dtype=stored, device=x.device)
    scale = torch.empty((num_rows,), dtype=torch.float32, device=x.device)
    if q.numel() == 0:
        return q.to(torch.float8_e4m3fn), scale
    x = x if x.stride(1) == 1 else x.contiguous()
    block = triton.next_power_of_2(width)
    if block > 8192:
        _quantize_long_row[(num_rows,)](x, q, scale, x.stride(0), width, BLOCK=4096, num_warps=8)
    else:
        rows = min(max(1, 4096 // block), triton.next_power_of_2(max(1, num_rows // 528)))
        # 16 elements a thread, so that a thread stores 16 bytes of FP8 at once.
        warps = min(8, max(1, rows * block // 512))
        _quantize_rows[(triton.cdiv(num_rows, rows),)](
            x, q, scale, x.stride(0), num_rows, width, ROWS=rows, BLOCK=block, num_warps=warps
        )
    return q.to(torch.float8_e4m3fn), scale
