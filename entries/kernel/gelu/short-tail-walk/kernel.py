"""GELU by resident CTAs that prefetch; the erf tail without a division, the tanh form as one sigmoid."""

import torch
import triton
import triton.language as tl


@triton.jit
def _phi_erf(x):
    """Return Phi(x); the tail is erfc / 2 by Abramowitz and Stegun 7.1.26 with all constants folded."""
    magnitude = tl.abs(x)
    denominator = 1.0 + 0.23164189 * magnitude
    # 1 / d for d >= 1: one product and one instruction of the special function unit; zero where d * d overflows.
    t = tl.rsqrt(denominator * denominator)
    series = t * (0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145))))
    tail = series * tl.exp2(magnitude * magnitude * -0.72134752)
    return tl.where(x < 0.0, tail, 1.0 - tail)


@triton.jit
def _phi_tanh(x):
    """Return sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3); exp2 may overflow, its reciprocal is then zero."""
    denominator = 1.0 + tl.exp2(x * (-2.3022082 - 0.10294324 * x * x))
    return tl.rsqrt(denominator * denominator)


@triton.jit
def _gelu_walk(x_ptr, y_ptr, total, tiles, TANH: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    start = tl.program_id(0).to(tl.int64) * BLOCK
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    ahead = tl.load(x_ptr + start + lane, mask=start + lane < total, other=0.0)
    for _ in range(tl.program_id(0), tiles, tl.num_programs(0)):
        x = ahead.to(tl.float32)
        later = start + step
        ahead = tl.load(x_ptr + later + lane, mask=later + lane < total, other=0.0)
        y = x * (_phi_tanh(x) if TANH else _phi_erf(x))
        tl.store(y_ptr + start + lane, y.to(y_ptr.dtype.element_ty), mask=start + lane < total)
        start = later


def run(x: torch.Tensor, tanh: int = 0) -> torch.Tensor:
    """Return GELU of x (erf form, or tanh form if tanh), a new contiguous tensor of the shape and dtype of x."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = y.numel()
    if total == 0:
        return y
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
    # 32 bytes a thread being worked on and 32 on the way; eight CTAs of four warps an SM, in equal rounds.
    block = 4096 // x.element_size()
    tiles = triton.cdiv(total, block)
    rounds = triton.cdiv(tiles, 8 * sms)
    _gelu_walk[(triton.cdiv(tiles, rounds),)](
        x.contiguous(), y, total, tiles, TANH=bool(tanh), BLOCK=block, num_warps=4
    )
    return y
