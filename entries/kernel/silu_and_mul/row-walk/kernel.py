"""SiLU of the first half of every row times the second half: CTAs keep their columns and walk down the rows."""

import torch
import triton
import triton.language as tl


@triton.jit
def _halves(x_ptr, rows, cols, stride_x, num_tokens, width):
    inside = (rows < num_tokens)[:, None] & (cols < width)[None, :]
    source = x_ptr + rows.to(tl.int64)[:, None] * stride_x + cols[None, :]
    return tl.load(source, mask=inside, other=0.0), tl.load(source + width, mask=inside, other=0.0)


@triton.jit(do_not_specialize=["num_tokens"])
def _silu_and_mul_walk(x_ptr, y_ptr, stride_x, num_tokens, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    step = tl.num_programs(0) * ROWS
    gate, up = _halves(x_ptr, rows, cols, stride_x, num_tokens, width)
    for _ in range(tl.program_id(0) * ROWS, num_tokens, step):
        # Asked for ahead of the exp and the store: pointers may alias, so a load never moves above a store by itself.
        # The tile behind the last one lies past num_tokens and is masked off.
        next_gate, next_up = _halves(x_ptr, rows + step, cols, stride_x, num_tokens, width)
        z = gate.to(tl.float32)
        power = tl.exp(-tl.abs(z))  # at most 1: the sigmoid overflows on neither side
        y = z * tl.where(z < 0.0, power, 1.0) / (1.0 + power) * up.to(tl.float32)
        inside = (rows < num_tokens)[:, None] & (cols < width)[None, :]
        target = y_ptr + rows.to(tl.int64)[:, None] * width + cols[None, :]
        tl.store(target, y.to(y_ptr.dtype.element_ty), mask=inside)
        gate, up, rows = next_gate, next_up, rows + step


def run(x: torch.Tensor) -> torch.Tensor:
    """Return silu(x[:, :I]) * x[:, I:] for x [num_tokens, 2 I], any row stride; a new tensor [num_tokens, I]."""
    num_tokens, width = x.shape[0], x.shape[1] // 2
    y = torch.empty((num_tokens, width), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x = x if x.stride(1) == 1 else x.contiguous()
    block = min(512, triton.next_power_of_2(width))
    columns = triton.cdiv(width, block)
    slots = 8 * (torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 1)
    # 2048 outputs a tile when they fill eight CTAs an SM; else single rows, on as few warps as give a lane 16 bytes.
    rows = max(1, 2048 // block) if y.numel() >= 2048 * slots else 1
    turns = triton.cdiv(triton.cdiv(num_tokens, rows) * columns, slots)
    _silu_and_mul_walk[(triton.cdiv(num_tokens, rows * turns), columns)](
        x, y, x.stride(0), num_tokens, width, ROWS=rows, BLOCK=block, num_warps=min(4, max(1, rows * block // 256))
    )
    return y
