"""Causal depthwise convolution over sequences: a tile of tokens by channels, read once per tap at shifted rows."""

import torch
import triton
import triton.language as tl

BLOCK_C = 256
"""Channels of a tile: 32 lanes with 8 each, 16-byte loads in 16 bits."""


@triton.jit(do_not_specialize=["tokens"])  # a length of 1 would be no tensor
def _conv_tile(
    x_ptr, state_ptr, weight_ptr, y_ptr, new_ptr, x_seq, x_token, tokens, channels,
    WIDTH: tl.constexpr, SILU: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    first = tl.program_id(1) * BLOCK_T
    seq = tl.program_id(2).to(tl.int64)
    own = channel < channels
    token = first + tl.arange(0, BLOCK_T)
    x_ptr += seq * x_seq
    state_ptr += seq * ((WIDTH - 1) * channels)
    z = tl.zeros([BLOCK_T, BLOCK_C], tl.float32)
    for tap in tl.static_range(WIDTH):
        row = token + (tap - (WIDTH - 1))
        inside = (row >= 0) & (row < tokens)
        at = row.to(tl.int64)[:, None] * x_token + channel[None, :]
        known = tl.load(x_ptr + at, mask=inside[:, None] & own[None, :], other=0.0).to(tl.float32)
        if first < WIDTH - 1:
            # Rows before the first token: only the first tile has any.
            before = (row + (WIDTH - 1))[:, None] * channels + channel[None, :]
            known += tl.load(state_ptr + before, mask=(row < 0)[:, None] & own[None, :], other=0.0).to(tl.float32)
        taps = tl.load(weight_ptr + channel * WIDTH + tap, mask=own, other=0.0).to(tl.float32)
        z += known * taps[None, :]
    if SILU:
        z = z / (1.0 + tl.exp(-z))
    at = (seq * tokens + token)[:, None] * channels + channel[None, :]
    tl.store(y_ptr + at, z.to(y_ptr.dtype.element_ty), mask=(token < tokens)[:, None] & own[None, :])
    if first + BLOCK_T >= tokens:
        for place in tl.static_range(WIDTH - 1):
            end = tokens + (place - (WIDTH - 1))
            if end >= 0:
                kept = tl.load(x_ptr + end.to(tl.int64) * x_token + channel, mask=own)
            else:
                kept = tl.load(state_ptr + (end + (WIDTH - 1)) * channels + channel, mask=own)
            tl.store(new_ptr + (seq * (WIDTH - 1) + place) * channels + channel, kept, mask=own)


def run(
    x: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor, silu: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Convolve every sequence with its channels' filters and return the state after its last token.

    Args:
        x: [num_seqs, num_tokens, num_channels], last axis contiguous, other strides free.
        conv_state: [num_seqs, width - 1, num_channels], the inputs before x, oldest first.
        weight: [num_channels, width], the last column meets the token itself; width at least 2.
        silu: 1 applies silu.

    Returns:
        y, contiguous, and the new state; sums in float32, no scratch memory.
    """
    num_seqs, tokens, channels = x.shape
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y, conv_state.clone(memory_format=torch.contiguous_format)
    conv_state = conv_state.contiguous()
    new_state = torch.empty_like(conv_state)
    block_t = 32 if tokens > 1024 else 16
    _conv_tile[(triton.cdiv(channels, BLOCK_C), triton.cdiv(tokens, block_t), num_seqs)](
        x, conv_state, weight.contiguous(), y, new_state, x.stride(0), x.stride(1), tokens, channels,
        WIDTH=weight.shape[1], SILU=bool(silu), BLOCK_T=block_t, BLOCK_C=BLOCK_C, num_warps=block_t // 4,
    )  # fmt: skip
    return y, new_state
