"""Causal depthwise convolution over sequences: channels stay with a CTA, the last rows slide through its registers."""

import torch
import triton
import triton.language as tl

BLOCK_C = 512
"""Channels of a CTA: two warps, 8 channels a lane, 16-byte loads in 16 bits."""

SPANS = (128, 64, 32, 16)
"""Tokens a CTA walks over, the longest that still gives enough CTAs; multiples of the four of one turn."""


@triton.jit
def _known(x_ptr, state_ptr, row, x_token, channel, channels, WIDTH: tl.constexpr):
    """Load an input row; rows before the first token lie in the state, as far as it goes back."""
    if row >= 0:
        kept = tl.load(x_ptr + row.to(tl.int64) * x_token + channel, mask=channel < channels, other=0.0)
    else:
        old = row + (WIDTH - 1)
        kept = tl.load(state_ptr + old * channels + channel, mask=channel < tl.where(old >= 0, channels, 0), other=0.0)
    return kept


@triton.jit
def _weighted(a, b, c, d, wa, wb, wc, wd, WIDTH: tl.constexpr, SILU: tl.constexpr):
    """Sum the last WIDTH of four rows under the filter."""
    z = d.to(tl.float32) * wd + c.to(tl.float32) * wc
    if WIDTH > 2:
        z += b.to(tl.float32) * wb
    if WIDTH > 3:
        z += a.to(tl.float32) * wa
    if SILU:
        z = z / (1.0 + tl.exp(-z))
    return z


@triton.jit(do_not_specialize=["tokens"])  # a length of 1 would be no tensor
def _conv_walk(
    x_ptr, state_ptr, weight_ptr, y_ptr, new_ptr, x_seq, x_token, tokens, channels,
    WIDTH: tl.constexpr, SILU: tl.constexpr, SPAN: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    first = tl.program_id(1) * SPAN
    seq = tl.program_id(2).to(tl.int64)
    own = channel < channels
    x_ptr += seq * x_seq
    state_ptr += seq * ((WIDTH - 1) * channels)
    y_ptr += seq * tokens * channels
    taps = weight_ptr + channel * WIDTH + (WIDTH - 1)
    wd = tl.load(taps, mask=own, other=0.0).to(tl.float32)
    wc = tl.load(taps - 1, mask=own, other=0.0).to(tl.float32)
    wa, wb = wd, wd  # not used by a shorter filter
    if WIDTH > 2:
        wb = tl.load(taps - 2, mask=own, other=0.0).to(tl.float32)
    if WIDTH > 3:
        wa = tl.load(taps - 3, mask=own, other=0.0).to(tl.float32)
    a = _known(x_ptr, state_ptr, first - 3, x_token, channel, channels, WIDTH)
    b = _known(x_ptr, state_ptr, first - 2, x_token, channel, channels, WIDTH)
    c = _known(x_ptr, state_ptr, first - 1, x_token, channel, channels, WIDTH)
    kind = y_ptr.dtype.element_ty
    for token in range(first, tl.minimum(first + SPAN, tokens), 4):
        at = token + tl.zeros([], tl.int64)
        row, out = x_ptr + at * x_token + channel, y_ptr + at * channels + channel
        # Four rows are asked for before the first is used or a result stored: that many loads are under way.
        # A row past the last token has no channels.
        own_e = channel < tl.where(at + 1 < tokens, channels, 0)
        own_f = channel < tl.where(at + 2 < tokens, channels, 0)
        own_g = channel < tl.where(at + 3 < tokens, channels, 0)
        d = tl.load(row, mask=own, other=0.0)
        e = tl.load(row + x_token, mask=own_e, other=0.0)
        f = tl.load(row + 2 * x_token, mask=own_f, other=0.0)
        g = tl.load(row + 3 * x_token, mask=own_g, other=0.0)
        z = _weighted(a, b, c, d, wa, wb, wc, wd, WIDTH, SILU)
        tl.store(out, z.to(kind), mask=own)
        z = _weighted(b, c, d, e, wa, wb, wc, wd, WIDTH, SILU)
        tl.store(out + channels, z.to(kind), mask=own_e)
        z = _weighted(c, d, e, f, wa, wb, wc, wd, WIDTH, SILU)
        tl.store(out + 2 * channels, z.to(kind), mask=own_f)
        z = _weighted(d, e, f, g, wa, wb, wc, wd, WIDTH, SILU)
        tl.store(out + 3 * channels, z.to(kind), mask=own_g)
        a, b, c = e, f, g
    if first + SPAN >= tokens:
        # The walk may have run past the last token by up to three rows, so the state is read again.
        for place in tl.static_range(WIDTH - 1):
            end = tokens + (place - (WIDTH - 1))
            kept = _known(x_ptr, state_ptr, end, x_token, channel, channels, WIDTH)
            tl.store(new_ptr + (seq * (WIDTH - 1) + place) * channels + channel, kept, mask=own)


def run(
    x: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor, silu: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Convolve every sequence with its channels' filters and return the state after its last token.

    Args:
        x: [num_seqs, num_tokens, num_channels], last axis contiguous, other strides free.
        conv_state: [num_seqs, width - 1, num_channels], the inputs before x, oldest first.
        weight: [num_channels, width], width 2 to 4, the last column meets the token itself.
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
    columns = triton.cdiv(channels, BLOCK_C)
    wanted = 8 * torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 4
    span = next((one for one in SPANS if columns * num_seqs * triton.cdiv(tokens, one) >= wanted), SPANS[-1])
    _conv_walk[(columns, triton.cdiv(tokens, span), num_seqs)](
        x, conv_state, weight.contiguous(), y, new_state, x.stride(0), x.stride(1), tokens, channels,
        WIDTH=weight.shape[1], SILU=bool(silu), SPAN=span, BLOCK_C=BLOCK_C, num_warps=2,
    )  # fmt: skip
    return y, new_state
