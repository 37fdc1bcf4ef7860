"""Attention output gate, flat over all elements, 16 a lane; the next kernel may take its places while this one ends."""

import torch
import triton
import triton.language as tl


@triton.jit
def _place(ptr, offsets, token_stride, head_stride, HEADS: tl.constexpr, DIM: tl.constexpr, FLAT: tl.constexpr):
    """Return where the elements of the output lie in an input; the divisions are by compile-time constants."""
    if FLAT:
        place = ptr + offsets
    else:
        row = offsets // DIM
        token = row // HEADS
        place = ptr + token * token_stride + (row - token * HEADS) * head_stride + (offsets - row * DIM)
    return place


@triton.jit
def _sigmoid_mul_flat(
    x_ptr, gate_ptr, y_ptr, total, x_token, x_head, gate_token, gate_head,
    HEADS: tl.constexpr, DIM: tl.constexpr, X_FLAT: tl.constexpr, GATE_FLAT: tl.constexpr,
    BLOCK: tl.constexpr, WIDE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    # 32-bit unless the offsets need more: 64-bit division by a constant costs three times as many instructions.
    index = tl.program_id(0).to(tl.int64) if WIDE else tl.program_id(0)
    offsets = index * BLOCK + tl.arange(0, BLOCK)
    x_from = _place(x_ptr, offsets, x_token, x_head, HEADS, DIM, X_FLAT)
    gate_from = _place(gate_ptr, offsets, gate_token, gate_head, HEADS, DIM, GATE_FLAT)
    if EARLY:
        # Nothing is touched before the kernel ahead is complete; from then on the next one may take free places.
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    gate = tl.load(gate_from, mask=offsets < total, other=0.0, eviction_policy="evict_first").to(tl.float32)
    x = tl.load(x_from, mask=offsets < total, other=0.0, eviction_policy="evict_first").to(tl.float32)
    power = tl.exp2(tl.abs(gate) * -1.4426950408889634)  # at most 1: the sigmoid overflows on neither side
    divisor = 1.0 + power
    # 1 / d for d between 1 and 2: a product and one special function, without the guards of a division.
    y = x * tl.where(gate < 0.0, power, 1.0) * tl.rsqrt(divisor * divisor)
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=offsets < total)


def run(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """Return x * sigmoid(gate), new and contiguous.

    x and gate [num_tokens, num_heads, head_dim], token and head strides free.
    """
    num_tokens, num_heads, head_dim = x.shape
    y = torch.empty((num_tokens, num_heads, head_dim), dtype=x.dtype, device=x.device)
    total = y.numel()
    if total == 0:
        return y
    x = x if x.stride(2) == 1 else x.contiguous()
    gate = gate if gate.stride(2) == 1 else gate.contiguous()
    # 16 elements a lane once 132 SMs have a wave of such CTAs; else 8, and single warps for a few tokens.
    block, warps = (2048, 4) if total >= 2048 * 2112 else (1024, 4) if total >= 1024 * 132 else (256, 1)
    reach = num_tokens * max(x.stride(0), gate.stride(0), num_heads * head_dim) + block
    early = x.is_cuda and torch.cuda.get_device_capability(x.device)[0] >= 9
    _sigmoid_mul_flat[(triton.cdiv(total, block),)](
        x, gate, y, total, x.stride(0), x.stride(1), gate.stride(0), gate.stride(1),
        HEADS=num_heads, DIM=head_dim, X_FLAT=x.is_contiguous(), GATE_FLAT=gate.is_contiguous(),
        BLOCK=block, WIDE=reach >= 2**31, EARLY=early, num_warps=warps, **({"launch_pdl": True} if early else {}),
    )  # fmt: skip
    return y
