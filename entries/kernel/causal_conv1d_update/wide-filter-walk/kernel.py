"""One causal convolution step: the filter arrives in wide loads and is split in registers, sequences walk by."""

import torch
import triton
import triton.language as tl


@triton.jit
def _taps(weight_ptr, first, channels, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Load the filters of a block of channels as one run and deal the four taps out; short filters repeat a tap."""
    if WIDTH == 4:
        index = tl.arange(0, 4 * BLOCK)
        run = tl.load(weight_ptr + first * 4 + index, mask=first * 4 + index < channels * 4, other=0.0)
        even, odd = tl.split(tl.reshape(run, (BLOCK, 2, 2)))
        a, c = tl.split(even)
        b, d = tl.split(odd)
    else:
        channel = first + tl.arange(0, BLOCK)
        last = weight_ptr + channel * WIDTH + (WIDTH - 1)
        d = tl.load(last, mask=channel < channels, other=0.0)
        c = tl.load(last - 1, mask=channel < channels, other=0.0)
        b = c
        if WIDTH > 2:
            b = tl.load(last - 2, mask=channel < channels, other=0.0)
        a = b
    return a.to(tl.float32), b.to(tl.float32), c.to(tl.float32), d.to(tl.float32)


@triton.jit(do_not_specialize=["num_seqs"])
def _conv_step_walk(
    x_ptr, state_ptr, weight_ptr, y_ptr, new_ptr, stride_x, num_seqs, channels,
    WIDTH: tl.constexpr, SILU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * BLOCK
    channel = first + tl.arange(0, BLOCK)
    own = channel < channels
    wa, wb, wc, wd = _taps(weight_ptr, first, channels, WIDTH, BLOCK)
    seq = tl.program_id(1).to(tl.int64)
    for _ in range(tl.program_id(1), num_seqs, tl.num_programs(1)):
        rows = seq * (WIDTH - 1) * channels + channel
        # All four rows are asked for before anything is stored: a load never moves above a store by itself.
        d = tl.load(x_ptr + seq * stride_x + channel, mask=own, other=0.0)
        c = tl.load(state_ptr + rows + (WIDTH - 2) * channels, mask=own, other=0.0)
        z = d.to(tl.float32) * wd + c.to(tl.float32) * wc
        if WIDTH > 2:
            b = tl.load(state_ptr + rows + (WIDTH - 3) * channels, mask=own, other=0.0)
            z += b.to(tl.float32) * wb
        if WIDTH > 3:
            a = tl.load(state_ptr + rows, mask=own, other=0.0)
            z += a.to(tl.float32) * wa
        if WIDTH > 3:
            tl.store(new_ptr + rows, b, mask=own)
        if WIDTH > 2:
            tl.store(new_ptr + rows + (WIDTH - 3) * channels, c, mask=own)
        tl.store(new_ptr + rows + (WIDTH - 2) * channels, d, mask=own)
        if SILU:
            z = z / (1.0 + tl.exp(-z))
        tl.store(y_ptr + seq * channels + channel, z.to(y_ptr.dtype.element_ty), mask=own)
        seq += tl.num_programs(1)


def run(
    x: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor, silu: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advance every sequence by one token.

    Args:
        x: [num_seqs, num_channels], last axis contiguous.
        conv_state: [num_seqs, width - 1, num_channels], oldest first.
        weight: [num_channels, width], the last column meets x; width 2 to 4.
        silu: 1 applies silu.

    Returns:
        y like x, and the new state; sums in float32, no scratch memory.
    """
    num_seqs, channels = x.shape
    y = torch.empty((num_seqs, channels), dtype=x.dtype, device=x.device)
    conv_state = conv_state.contiguous()
    new_state = torch.empty_like(conv_state)
    if y.numel() == 0:
        return y, new_state
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 1
    # 8 channels a lane; two warps a CTA, one where a single sequence must spread over the SMs.
    block = 512 if num_seqs >= 4 else 256
    columns = triton.cdiv(channels, block)
    turns = triton.cdiv(num_seqs * columns, 8 * sms)
    _conv_step_walk[(columns, triton.cdiv(num_seqs, turns))](
        x, conv_state, weight.contiguous(), y, new_state, x.stride(0), num_seqs, channels,
        WIDTH=weight.shape[1], SILU=bool(silu), BLOCK=block, num_warps=block // 256,
    )  # fmt: skip
    return y, new_state
