"""One causal convolution step: channels across lanes, filter taps unrolled, several sequences per filter load."""

import torch
import triton
import triton.language as tl

SEQS = 4
"""Sequences a CTA takes, so that the filter, whose taps lie 4 elements apart, is loaded once for all of them."""


@triton.jit
def _conv_step(
    x_ptr,
    state_ptr,
    weight_ptr,
    y_ptr,
    new_ptr,
    stride_x,
    num_seqs,
    channels,
    WIDTH: tl.constexpr,
    SILU: tl.constexpr,
    SEQS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    seq = tl.program_id(1).to(tl.int64) * SEQS + tl.arange(0, SEQS)
    inside = (seq < num_seqs)[:, None] & (channel < channels)[None, :]
    x = tl.load(x_ptr + seq[:, None] * stride_x + channel[None, :], mask=inside, other=0.0)
    tap = tl.load(weight_ptr + channel * WIDTH + (WIDTH - 1), mask=channel < channels, other=0.0).to(tl.float32)
    z = x.to(tl.float32) * tap[None, :]
    rows = seq[:, None] * ((WIDTH - 1) * channels) + channel[None, :]
    for age in tl.static_range(WIDTH - 1):
        old = tl.load(state_ptr + rows + age * channels, mask=inside, other=0.0)
        if age > 0:
            tl.store(new_ptr + rows + (age - 1) * channels, old, mask=inside)
        tap = tl.load(weight_ptr + channel * WIDTH + age, mask=channel < channels, other=0.0).to(tl.float32)
        z += old.to(tl.float32) * tap[None, :]
    tl.store(new_ptr + rows + (WIDTH - 2) * channels, x, mask=inside)
    if SILU:
        z = z / (1.0 + tl.exp(-z))
    tl.store(y_ptr + seq[:, None] * channels + channel[None, :], z.to(y_ptr.dtype.element_ty), mask=inside)


def run(
    x: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor, silu: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advance every sequence by one token.

    Args:
        x: [num_seqs, num_channels], last axis contiguous.
        conv_state: [num_seqs, width - 1, num_channels], oldest first.
        weight: [num_channels, width], the last column meets x; width at least 2.
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
    seqs = SEQS if num_seqs >= 32 else 1
    block = 512 if num_seqs >= 4 else 128
    _conv_step[(triton.cdiv(channels, block), triton.cdiv(num_seqs, seqs))](
        x,
        conv_state,
        weight.contiguous(),
        y,
        new_state,
        x.stride(0),
        num_seqs,
        channels,
        WIDTH=weight.shape[1],
        SILU=bool(silu),
        SEQS=seqs,
        BLOCK=block,
        num_warps=4 if block == 512 else 1,
    )
    return y, new_state
