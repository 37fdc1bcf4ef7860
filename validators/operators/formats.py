"""Low-bit number formats: rounding, packing and block scaling, exact in float64.

Bit layouts, fixed for every operator that takes them:

- **e2m1** (4 bits ``s e e m``, bias 1): codes 0..7 are 0, 0.5, 1, 1.5, 2, 3, 4, 6; code 8 + c is minus code c, so 8 is
  -0. No infinity, no NaN; rounding saturates at 6. Two codes a byte along the last axis, the **even index in the low
  nibble**: ``byte[j] = code[2 j] | code[2 j + 1] << 4``.
- **e4m3** (``float8_e4m3fn``, bias 7): largest 448, smallest 2^-9, no infinity.
- **e8m0** (one uint8): the value is 2^(byte - 127); 255 is NaN.
- **nvfp4**: packed e2m1 [..., K / 2] uint8, an e4m3 scale for every 16 elements [..., K / 16], and one float32 global
  scale that *multiplies*: ``value = e2m1 * scale * global_scale``. Scales are linear (row-major), not swizzled.
- **mxfp4**: packed e2m1 [..., K / 2] uint8 and an e8m0 scale for every 32 elements [..., K / 32] uint8.
- **fp8 with scales**: e4m3 elements and float32 scales that multiply, one a tensor or one a tile of rows x columns;
  a tile at the edge may be smaller.

Rounding is to nearest, ties to even, once, from float64: no double rounding through float32.
"""

import torch

E2M1_MAX = 6.0
"""Largest e2m1 magnitude."""

E4M3_MAX = 448.0
"""Largest finite e4m3 magnitude."""

NVFP4_BLOCK = 16
"""Elements under one e4m3 scale."""

MXFP4_BLOCK = 32
"""Elements under one e8m0 scale."""

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def round_to_format(x: torch.Tensor, mantissa_bits: int, min_exponent: int, largest: float) -> torch.Tensor:
    """Round to the nearest number of a small binary format, ties to even, saturating.

    Args:
        x: Any finite floating tensor.
        mantissa_bits: Explicit mantissa bits: 1 for e2m1, 3 for e4m3, 2 for e5m2.
        min_exponent: Exponent of the smallest normal number: 0, -6, -14; below it the spacing stays constant.
        largest: Saturation value.

    Returns:
        float64, the shape of ``x``; zeros keep the sign of ``x``.
    """
    wide = x.to(torch.float64)
    exponent = torch.frexp(wide).exponent - 1
    quantum = torch.exp2((exponent.clamp(min=min_exponent) - mantissa_bits).to(torch.float64))
    return (torch.round(wide / quantum) * quantum).clamp(-largest, largest)


def e4m3(x: torch.Tensor) -> torch.Tensor:
    """Round to float8_e4m3fn with saturation at 448; torch's own cast turns an overflow into NaN."""
    return round_to_format(x, 3, -6, E4M3_MAX).to(torch.float8_e4m3fn)


def e2m1_encode(x: torch.Tensor) -> torch.Tensor:
    """Return 4-bit codes (uint8, 0..15, shape of x) of x rounded to e2m1; the sign bit is that of x, also for 0."""
    magnitude = round_to_format(x.abs(), 1, 0, E2M1_MAX)
    table = torch.tensor(_E2M1, dtype=torch.float64, device=x.device)
    code = torch.searchsorted(table, magnitude.contiguous())
    return (code + 8 * torch.signbit(x)).to(torch.uint8)


def e2m1_decode(code: torch.Tensor) -> torch.Tensor:
    """Return the float64 values of 4-bit codes (any integer dtype, 0..15)."""
    table = torch.tensor(_E2M1 + tuple(-v for v in _E2M1), dtype=torch.float64, device=code.device)
    return table[code.to(torch.int64)]


def pack_nibbles(code: torch.Tensor) -> torch.Tensor:
    """Pack codes [..., K], K even, into bytes [..., K / 2]; the even index goes to the low nibble."""
    return code[..., 0::2] | (code[..., 1::2] << 4)


def unpack_nibbles(packed: torch.Tensor) -> torch.Tensor:
    """Undo ``pack_nibbles``: bytes [..., K / 2] to codes [..., K]."""
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)


def e8m0_decode(scale: torch.Tensor) -> torch.Tensor:
    """Return 2^(byte - 127) in float64, NaN for 255."""
    value = torch.exp2(scale.to(torch.float64) - 127)
    return torch.where(scale == 255, torch.full_like(value, torch.nan), value)


def _blocks(x: torch.Tensor, block: int) -> torch.Tensor:
    """View the last axis as blocks, in float64: [..., K] to [..., K / block, block]."""
    return x.to(torch.float64).reshape(*x.shape[:-1], x.shape[-1] // block, block)


def nvfp4_global_scale(x: torch.Tensor) -> torch.Tensor:
    """Return the float32 global scale [1] that puts max |x| on the largest code: amax / (6 * 448), 1 for zeros."""
    amax = x.to(torch.float64).abs().amax() if x.numel() else torch.zeros((), dtype=torch.float64)
    scale = torch.where(amax > 0, amax / (E2M1_MAX * E4M3_MAX), torch.ones_like(amax))
    return scale.to(torch.float32).reshape(1)


def nvfp4_quantize(x: torch.Tensor, global_scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise to nvfp4.

    The block scale is e4m3(amax / (6 * global_scale)) and the code e2m1(x / (scale * global_scale)), each rounded once
    from the exact quotient. A block whose scale rounds to 0 gets codes of magnitude 0 with the signs of x.

    Args:
        x: [..., K], K a multiple of 16.
        global_scale: float32, one element or broadcastable to [..., 1].

    Returns:
        packed uint8 [..., K / 2] and scale float8_e4m3fn [..., K / 16].
    """
    wide = _blocks(x, NVFP4_BLOCK)
    outer = global_scale.to(torch.float64)
    scale = e4m3(wide.abs().amax(-1) / (E2M1_MAX * outer))
    step = (scale.to(torch.float64) * outer).unsqueeze(-1)
    zero = torch.copysign(torch.zeros_like(wide), wide)
    ratio = torch.where(step > 0, wide / torch.where(step > 0, step, torch.ones_like(step)), zero)
    return pack_nibbles(e2m1_encode(ratio).flatten(-2)), scale


def nvfp4_dequantize(packed: torch.Tensor, scale: torch.Tensor, global_scale: torch.Tensor) -> torch.Tensor:
    """Return e2m1 * scale * global_scale in float64.

    Args:
        packed: uint8 [..., K / 2].
        scale: float8_e4m3fn [..., K / 16].
        global_scale: float32, broadcastable to [..., K].

    Returns:
        float64 [..., K], exact: 6 significant bits of the block product times 24 of the global scale.
    """
    blocks = _blocks(e2m1_decode(unpack_nibbles(packed)), NVFP4_BLOCK)
    return (blocks * scale.to(torch.float64).unsqueeze(-1)).flatten(-2) * global_scale.to(torch.float64)


def mxfp4_quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise to mxfp4 with the scale of the OCP Microscaling specification: 2^(floor(log2(amax)) - 2).

    Args:
        x: [..., K], K a multiple of 32. Elements above 6 * scale saturate, as the specification has it.

    Returns:
        packed uint8 [..., K / 2] and scale uint8 (e8m0) [..., K / 32]; a block of zeros gets scale byte 0.
    """
    wide = _blocks(x, MXFP4_BLOCK)
    amax = wide.abs().amax(-1)
    exponent = torch.where(amax > 0, torch.frexp(amax).exponent - 3, torch.full_like(amax, -127, dtype=torch.int32))
    exponent = exponent.clamp(-127, 127)
    codes = e2m1_encode(wide / torch.exp2(exponent.to(torch.float64)).unsqueeze(-1))
    return pack_nibbles(codes.flatten(-2)), (exponent + 127).to(torch.uint8)


def mxfp4_dequantize(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return e2m1 * 2^(scale - 127) in float64 [..., K]; packed uint8 [..., K / 2], scale uint8 [..., K / 32]."""
    blocks = _blocks(e2m1_decode(unpack_nibbles(packed)), MXFP4_BLOCK)
    return (blocks * e8m0_decode(scale).unsqueeze(-1)).flatten(-2)


def expand_scale(scale: torch.Tensor, tile: tuple[int, int], shape: tuple[int, int]) -> torch.Tensor:
    """Repeat tile scales [..., ceil(R / tile[0]), ceil(C / tile[1])] to float64 [..., R, C] for shape (R, C)."""
    wide = scale.to(torch.float64).repeat_interleave(tile[0], -2).repeat_interleave(tile[1], -1)
    return wide[..., : shape[0], : shape[1]]


def fp8_quantize_tensor(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise to e4m3 with one scale: q float8_e4m3fn like x, scale float32 [1] = amax / 448 (1 for zeros)."""
    amax = x.to(torch.float64).abs().amax() if x.numel() else torch.zeros((), dtype=torch.float64)
    scale = torch.where(amax > 0, amax / E4M3_MAX, torch.ones_like(amax)).to(torch.float32).reshape(1)
    return e4m3(x.to(torch.float64) / scale.to(torch.float64)), scale


def fp8_quantize_tiles(x: torch.Tensor, tile: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise the last two axes to e4m3 with a float32 scale for every tile.

    Args:
        x: [..., R, C].
        tile: (rows, columns): (1, 128) for activations, (128, 128) for weights. Edge tiles may be smaller.

    Returns:
        q float8_e4m3fn [..., R, C] and scale float32 [..., ceil(R / rows), ceil(C / columns)], amax / 448, 1 for zeros.
    """
    rows, columns = x.shape[-2], x.shape[-1]
    down, across = -(-rows // tile[0]), -(-columns // tile[1])
    pad = (0, across * tile[1] - columns, 0, down * tile[0] - rows)
    wide = torch.nn.functional.pad(x.to(torch.float64), pad)
    amax = wide.reshape(*x.shape[:-2], down, tile[0], across, tile[1]).abs().amax((-3, -1))
    scale = torch.where(amax > 0, amax / E4M3_MAX, torch.ones_like(amax)).to(torch.float32)
    return e4m3(x.to(torch.float64) / expand_scale(scale, tile, (rows, columns))), scale


def fp8_dequantize_tiles(q: torch.Tensor, scale: torch.Tensor, tile: tuple[int, int]) -> torch.Tensor:
    """Return q * scale in float64 [..., R, C]; q float8 [..., R, C], scale as made by ``fp8_quantize_tiles``."""
    return q.to(torch.float64) * expand_scale(scale, tile, (q.shape[-2], q.shape[-1]))
