"""SwiGLU activation and per-token FP8 quantisation: a fixed set of CTAs walks the tokens, one row ahead."""

import torch
import triton
import triton.language as tl


@triton.jit
def _halves(x_ptr, rows, cols, stride_x, num_tokens, width):
    inside = (rows < num_tokens)[:, None] & (cols < width)[None, :]
    source = x_ptr + rows.to(tl.int64)[:, None] * stride_x + cols[None, :]
    return tl.load(source, mask=inside, other=0.0), tl.load(source + width, mask=inside, other=0.0)


@triton.jit(do_not_specialize=["num_tokens"])
def _silu_mul_quantize_walk(
    x_ptr, q_ptr, scale_ptr, stride_x, num_tokens, width, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    cols = tl.arange(0, BLOCK)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    step = tl.num_programs(0) * ROWS
    gate, up = _halves(x_ptr, rows, cols, stride_x, num_tokens, width)
    for _ in range(tl.program_id(0) * ROWS, num_tokens, step):
        # The next rows are under way while these are reduced: amax is a chain of shuffles with nothing to overlap it.
        next_gate, next_up = _halves(x_ptr, rows + step, cols, stride_x, num_tokens, width)
        z = gate.to(tl.float32)
        power = tl.exp(-tl.abs(z))  # at most 1: the sigmoid overflows on neither side
        h = z * tl.where(z < 0.0, power, 1.0) / (1.0 + power) * up.to(tl.float32)
        amax = tl.maximum(tl.max(tl.abs(h), axis=1), 1e-10)
        q = h * (448.0 / amax)[:, None]
        q = tl.minimum(tl.maximum(q, -448.0), 448.0)
        used = rows < num_tokens
        target = q_ptr + rows.to(tl.int64)[:, None] * width + cols[None, :]
        tl.store(target, q.to(q_ptr.dtype.element_ty), mask=used[:, None] & (cols < width)[None, :])
        tl.store(scale_ptr + rows, amax / 448.0, mask=used)
        gate, up, rows = next_gate, next_up, rows + step


def run(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (q float8_e4m3fn [num_tokens, I], scale float32 [num_tokens]) with silu(gate) * up ~ q * scale.

    x [num_tokens, 2 I], gate first, I <= 8192, any row stride.
    """
    num_tokens, width = x.shape[0], x.shape[1] // 2
    # The CPU interpreter rounds FP8 wrongly (a carry out of the mantissa is lost), so there torch does the last cast.
    stored = torch.float8_e4m3fn if x.is_cuda else torch.float32
    q = torch.empty((num_tokens, width), dtype=stored, device=x.device)
    scale = torch.empty((num_tokens,), dtype=torch.float32, device=x.device)
    if q.numel():
        x = x if x.stride(1) == 1 else x.contiguous()
        block = triton.next_power_of_2(width)
        sms = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 1
        # 16 values a lane: a warp takes a row of 512 or several shorter ones, longer rows take more warps.
        rows = max(1, 2048 // block) if num_tokens >= 16 * sms else 1
        warps = min(16, max(1, rows * block // 512))
        slots = sms * max(1, 32 // warps)  # 1024 threads an SM hold two rows each in 64 registers
        turns = triton.cdiv(triton.cdiv(num_tokens, rows), slots)
        _silu_mul_quantize_walk[(triton.cdiv(num_tokens, rows * turns),)](
            x, q, scale, x.stride(0), num_tokens, width, ROWS=rows, BLOCK=block, num_warps=warps
        )
    return q.to(torch.float8_e4m3fn), scale
