"""LayerNorm by resident CTAs: weight and bias stay in registers, the next rows arrive while these are normalised."""

import torch
import triton
import triton.language as tl


@triton.jit
def _layernorm_walk(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, num_rows, hidden_size, eps, tiles,
    ROWS: tl.constexpr, MAIN: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    # A row is cut into the largest power of two that it holds, whose columns need no mask, and the rest.
    cols = tl.arange(0, MAIN)
    out = y_ptr.dtype.element_ty
    first = tl.program_id(0)
    rows = first.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    used = (rows < num_rows)[:, None]
    ahead = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=used, other=0.0)
    if REST > 0:
        tail = MAIN + tl.arange(0, REST)
        known = (tail < hidden_size)[None, :]
        ahead_tail = tl.load(x_ptr + rows[:, None] * stride_x + tail[None, :], mask=used & known, other=0.0)
        tail_weight = tl.load(weight_ptr + tail, mask=tail < hidden_size, other=0.0).to(tl.float32)[None, :]
        tail_bias = tl.load(bias_ptr + tail, mask=tail < hidden_size, other=0.0).to(tl.float32)[None, :]
    weight = tl.load(weight_ptr + cols).to(tl.float32)[None, :]
    bias = tl.load(bias_ptr + cols).to(tl.float32)[None, :]
    for _ in range(first, tiles, tl.num_programs(0)):
        used = (rows < num_rows)[:, None]
        target = y_ptr + rows[:, None] * hidden_size
        # Asked for now, needed in the next round: beyond the last row the mask is empty and nothing is read.
        later = rows + tl.num_programs(0).to(tl.int64) * ROWS
        wanted = (later < num_rows)[:, None]
        x = ahead.to(tl.float32)
        ahead = tl.load(x_ptr + later[:, None] * stride_x + cols[None, :], mask=wanted, other=0.0)
        total = tl.sum(x, axis=1)
        if REST > 0:
            x_tail = ahead_tail.to(tl.float32)
            ahead_tail = tl.load(x_ptr + later[:, None] * stride_x + tail[None, :], mask=wanted & known, other=0.0)
            total += tl.sum(x_tail, axis=1)
        mean = (total / hidden_size)[:, None]
        x -= mean
        squares = tl.sum(x * x, axis=1)
        if REST > 0:
            x_tail = tl.where(known, x_tail - mean, 0.0)
            squares += tl.sum(x_tail * x_tail, axis=1)
        rstd = (1.0 / tl.sqrt(squares / hidden_size + eps))[:, None]
        tl.store(target + cols[None, :], (x * rstd * weight + bias).to(out), mask=used)
        if REST > 0:
            y_tail = x_tail * rstd * tail_weight + tail_bias
            tl.store(target + tail[None, :], y_tail.to(out), mask=used & known)
        rows = later


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Normalise the rows of x [num_tokens, hidden_size <= 8192]; weight, bias [hidden_size]; a new tensor like x."""
    num_tokens, hidden_size = x.shape
    y = torch.empty((num_tokens, hidden_size), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x = x if x.stride(1) == 1 else x.contiguous()
    main = 1 << (hidden_size.bit_length() - 1)
    rest = triton.next_power_of_2(hidden_size - main) if hidden_size > main else 0
    # One warp up to 1024 columns and the rest, 32 elements a lane: Triton lays the warps of a CTA along a row first, so
    # that only a CTA of one warp reduces without shared memory and barriers.
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 1
    warps = min(8, triton.next_power_of_2(max(1, (main + rest) // 1024)))
    rows = max(1, min(1024 // triton.next_power_of_2(hidden_size), num_tokens // (8 * sms)))
    rows = 1 << (rows.bit_length() - 1)
    tiles = triton.cdiv(num_tokens, rows)
    # As many CTAs as stay resident, less those whose rounds would be fewer than the others'.
    rounds = triton.cdiv(tiles, max(1, 16 // warps) * sms)
    _layernorm_walk[(triton.cdiv(tiles, rounds),)](
        x, weight, bias, y, x.stride(0), num_tokens, hidden_size, eps, tiles,
        ROWS=rows, MAIN=main, REST=rest, num_warps=warps,
    )  # fmt: skip
    return y
