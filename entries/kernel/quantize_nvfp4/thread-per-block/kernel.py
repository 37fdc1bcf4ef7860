"""NVFP4 quantisation of 16-bit inputs: a thread owns a block of 16, codes come from a snapped product."""

import torch
import triton
import triton.language as tl


@triton.jit
def _e4m3_bits(t):
    # t is positive and at most 448. Normal range: round the float32 bits to 3 mantissa bits and rebias 127 to 7.
    bits = t.to(tl.int32, bitcast=True)
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - 960
    subnormal = (t + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    return tl.where(t < 0.015625, subnormal, normal)


@triton.jit
def _word(x, twice):
    """Eight codes of each row in one 32-bit word, the first in the low bits."""
    # w = 2 |x| / step, snapped to multiples of 2^-13: a quotient of 16-bit inputs is a tie or further from it than that.
    w = (tl.abs(x) * twice[:, None] + 1536.0) - 1536.0
    # The code of magnitude w / 2 is the least of three lines, rounded to even.
    z = tl.minimum(tl.minimum(w, w * 0.5 + 2.0), tl.minimum(w * 0.25 + 4.0, 7.0))
    code = (z + 12582912.0).to(tl.int32, bitcast=True) & 7
    code |= (x.to(tl.int32, bitcast=True) >> 28) & 8
    return tl.sum(code << (4 * tl.arange(0, 8))[None, :], axis=1)


@triton.jit
def _quantize_blocks(x_ptr, global_ptr, packed_ptr, scale_ptr, num_blocks, BLOCKS: tl.constexpr):
    block = tl.program_id(0).to(tl.int64) * BLOCKS + tl.arange(0, BLOCKS)
    keep = block < num_blocks
    # Two tiles of 8 columns, so that both halves of a block of 16 are 16-byte loads of the same thread.
    half = x_ptr + block[:, None] * 16 + tl.arange(0, 8)[None, :]
    low = tl.load(half, mask=keep[:, None], other=0.0).to(tl.float32)
    high = tl.load(half + 8, mask=keep[:, None], other=0.0).to(tl.float32)
    outer = tl.load(global_ptr)
    amax = tl.maximum(tl.max(tl.abs(low), axis=1), tl.max(tl.abs(high), axis=1))
    # div_rn: Triton's plain division is approximate, and a scale that is a tie would go to the wrong side.
    wanted = tl.div_rn(amax, tl.full((BLOCKS,), 6.0, tl.float32) * outer)
    code_scale = _e4m3_bits(tl.minimum(wanted, 448.0))
    step = (code_scale.to(tl.int16) << 7).to(tl.float16, bitcast=True).to(tl.float32) * (256.0 * outer)
    twice = tl.where(step > 0, 2.0 / step, 0.0)
    words = tl.join(_word(low, twice), _word(high, twice))
    tl.store(packed_ptr + block[:, None] * 2 + tl.arange(0, 2)[None, :], words, mask=keep[:, None])
    tl.store(scale_ptr + block, code_scale.to(tl.uint8), mask=keep)


def run(x: torch.Tensor, global_scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise x to NVFP4.

    Args:
        x: float16 or bfloat16 [num_tokens, hidden_size], hidden_size a multiple of 16.
        global_scale: float32 [1], multiplies on decoding.

    Returns:
        packed uint8 [num_tokens, hidden_size / 2] and scale float8_e4m3fn [num_tokens, hidden_size / 16].
    """
    if x.element_size() != 2:
        raise TypeError(f"float16 or bfloat16 wanted, got {x.dtype}: a float32 quotient can lie closer to a tie")
    num_tokens, hidden_size = x.shape
    packed = torch.empty((num_tokens, hidden_size // 2), dtype=torch.uint8, device=x.device)
    scale = torch.empty((num_tokens, hidden_size // 16), dtype=torch.uint8, device=x.device)
    num_blocks = scale.numel()
    if num_blocks:
        # A block a thread; a small tensor is spread over single warps.
        blocks = 32 if num_blocks < 32768 else 128
        _quantize_blocks[(triton.cdiv(num_blocks, blocks),)](
            x.contiguous(), global_scale, packed.view(torch.int32), scale, num_blocks, BLOCKS=blocks,
            num_warps=blocks // 32,
        )
    return packed, scale.view(torch.float8_e4m3fn)
