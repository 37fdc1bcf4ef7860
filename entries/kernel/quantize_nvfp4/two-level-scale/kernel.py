"""NVFP4 quantisation: a scale per 16 elements, all roundings to nearest even, by bit arithmetic on any GPU."""

import torch
import triton
import triton.language as tl


@triton.jit
def _e4m3_bits(t):
    # t is positive and at most 448. Normal range: round the float32 bits to 3 mantissa bits and rebias 127 to 7.
    bits = t.to(tl.int32, bitcast=True)
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - 960
    # Below 2^-6 the spacing is 2^-9, the unit in the last place of 2^14: adding 2^14 rounds to it.
    subnormal = (t + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    return tl.where(t < 0.015625, subnormal, normal)


@triton.jit
def _quantize_nvfp4(x_ptr, global_ptr, packed_ptr, scale_ptr, num_blocks, BLOCKS: tl.constexpr):
    block = tl.program_id(0).to(tl.int64) * BLOCKS + tl.arange(0, BLOCKS)
    x = tl.load(x_ptr + block[:, None] * 16 + tl.arange(0, 16)[None, :], mask=block[:, None] < num_blocks, other=0.0)
    x = x.to(tl.float32)
    outer = tl.load(global_ptr)
    a = tl.abs(x)
    # div_rn: Triton's plain division is approximate, and a scale that is a tie would go to the wrong side.
    wanted = tl.div_rn(tl.max(a, axis=1), tl.full((BLOCKS,), 6.0, tl.float32) * outer)
    code_scale = _e4m3_bits(tl.minimum(wanted, 448.0))
    step = (code_scale.to(tl.int16) << 7).to(tl.float16, bitcast=True).to(tl.float32) * (256.0 * outer)
    # |x| is compared with the midpoints, scaled: no division an element, and a binary search of the seven takes three
    # comparisons. Strict where the lower code is even. A step of 0 must give code 0: no number passes infinity.
    t = tl.where(step > 0, step, float("inf"))[:, None]
    upper = a >= 1.75 * t
    middle = a >= tl.where(upper, 3.5 * t, 0.75 * t)
    last = a > tl.where(middle, tl.where(upper, 5.0 * t, 1.25 * t), tl.where(upper, 2.5 * t, 0.25 * t))
    code = tl.where(upper, 4, 0) | tl.where(middle, 2, 0) | tl.where(last, 1, 0)
    code |= (x.to(tl.int32, bitcast=True) >> 28) & 8
    low, high = tl.split(tl.reshape(code, (BLOCKS, 8, 2)))
    byte = (low | (high << 4)).to(tl.uint8)
    tl.store(packed_ptr + block[:, None] * 8 + tl.arange(0, 8)[None, :], byte, mask=block[:, None] < num_blocks)
    tl.store(scale_ptr + block, code_scale.to(tl.uint8), mask=block < num_blocks)


def run(x: torch.Tensor, global_scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise x to NVFP4.

    Args:
        x: float32, float16 or bfloat16 [num_tokens, hidden_size], hidden_size a multiple of 16.
        global_scale: float32 [1], multiplies on decoding.

    Returns:
        packed uint8 [num_tokens, hidden_size / 2] and scale float8_e4m3fn [num_tokens, hidden_size / 16].
    """
    num_tokens, hidden_size = x.shape
    packed = torch.empty((num_tokens, hidden_size // 2), dtype=torch.uint8, device=x.device)
    scale = torch.empty((num_tokens, hidden_size // 16), dtype=torch.uint8, device=x.device)
    num_blocks = scale.numel()
    if num_blocks:
        grid = (triton.cdiv(num_blocks, 128),)
        _quantize_nvfp4[grid](x.contiguous(), global_scale, packed, scale, num_blocks, BLOCKS=128, num_warps=4)
    return packed, scale.view(torch.float8_e4m3fn)
