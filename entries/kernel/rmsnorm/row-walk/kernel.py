"""RMSNorm by CTAs that stay: the weight is read once a CTA, the next row is on its way while this one is summed."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_rows"])
def _rmsnorm_walk(x_ptr, weight_ptr, y_ptr, stride_x, num_rows, hidden_size, eps, MAIN: tl.constexpr, REST: tl.constexpr):
    # A row is cut into the largest power of two that it holds, whose columns need no mask, and the rest.
    row = tl.program_id(0)
    step = tl.num_programs(0)
    cols = tl.arange(0, MAIN)
    out = y_ptr.dtype.element_ty
    ahead = tl.load(x_ptr + row.to(tl.int64) * stride_x + cols)
    weight = tl.load(weight_ptr + cols)
    if REST > 0:
        tail = MAIN + tl.arange(0, REST)
        known = tail < hidden_size
        ahead_tail = tl.load(x_ptr + row.to(tl.int64) * stride_x + tail, mask=known, other=0.0)
        tail_weight = tl.load(weight_ptr + tail, mask=known, other=0.0)
    for _ in range(tl.program_id(0), num_rows, step):
        x = ahead.to(tl.float32)
        # Asked for now, needed in the next round; behind the last row nothing is read.
        source = x_ptr + (row + step).to(tl.int64) * stride_x
        more = row + step < num_rows
        ahead = tl.load(source + cols, mask=cols < tl.where(more, MAIN, 0), other=0.0)
        squares = tl.sum(x * x, axis=0)
        if REST > 0:
            x_tail = ahead_tail.to(tl.float32)
            ahead_tail = tl.load(source + tail, mask=tail < tl.where(more, hidden_size, 0), other=0.0)
            squares += tl.sum(x_tail * x_tail, axis=0)
        rstd = 1.0 / tl.sqrt(squares / hidden_size + eps)
        target = y_ptr + row.to(tl.int64) * hidden_size
        tl.store(target + cols, (x * rstd * weight.to(tl.float32)).to(out))
        if REST > 0:
            tl.store(target + tail, (x_tail * rstd * tail_weight.to(tl.float32)).to(out), mask=known)
        row += step


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Normalise the rows of x [num_tokens, hidden_size <= 16384]; weight [hidden_size]; returns a new tensor like x."""
    num_tokens, hidden_size = x.shape
    y = torch.empty((num_tokens, hidden_size), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x, weight = x if x.stride(1) == 1 else x.contiguous(), weight.contiguous()
    main = 1 << (hidden_size.bit_length() - 1)
    rest = triton.next_power_of_2(hidden_size - main) if hidden_size > main else 0
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 1
    lanes = max(1, (main + rest) * x.element_size() // 512)
    if num_tokens < 8 * sms:
        # Each row is somebody's only one: as many warps as make one load of 16 bytes a thread.
        warps = min(16, triton.next_power_of_2(lanes))
        programs = num_tokens
    else:
        # Four loads of 16 bytes a lane, so that up to 1,024 columns of 16 bits are one warp, without a barrier.
        warps = min(16, max(1, triton.next_power_of_2(lanes) // 4))
        rounds = triton.cdiv(num_tokens, max(1, (32 if lanes < 2 else 16) // warps) * sms)
        programs = triton.cdiv(num_tokens, rounds)
    _rmsnorm_walk[(programs,)](
        x, weight, y, x.stride(0), num_tokens, hidden_size, eps, MAIN=main, REST=rest, num_warps=warps
    )
    return y
