"""GEMM with NVFP4 weights for few rows: x stays in matrix-unit fragments, CTAs walk down the rows of the weight."""

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def _pair(bits, s, dtype: tl.constexpr, CPU: tl.constexpr):
    """Multiply the two 16-bit values in each word of ``bits`` by s; a last axis of two comes out."""
    if CPU:
        low = (bits << 16).to(tl.float32, bitcast=True) * s
        high = (bits & -65536).to(tl.float32, bitcast=True) * s
    else:
        FMA: tl.constexpr = "fma.rn.f16x2 $0, $1, $2, $3;" if dtype == tl.float16 else "fma.rn.bf16x2 $0, $1, $2, $3;"
        bits = tl.inline_asm_elementwise(FMA, "=r,r,r,r", [bits, s, -2147450880], dtype=tl.int32, is_pure=True, pack=1)
        low = bits.to(tl.int16).to(dtype, bitcast=True)
        high = (bits >> 16).to(tl.int16).to(dtype, bitcast=True)
    return tl.join(low, high)


@triton.jit
def _scale(s, dtype: tl.constexpr, CPU: tl.constexpr):
    """Return e4m3 bytes s times 2^118 (float16: 2^6) twice in a word; on the CPU once, as float32."""
    if CPU:
        return ((s & 127).to(tl.int16) << 7).to(tl.float16, bitcast=True).to(tl.float32) * 8.507059173023462e37
    s = (s & 127).to(tl.int32)
    if dtype == tl.float16:  # the bits moved by 7 are the scale * 2^-8
        ONCE: tl.constexpr = "fma.rn.f16x2 $0, $1, $2, $3;"
        return tl.inline_asm_elementwise(
            ONCE, "=r,r,r,r", [s * 0x00800080, 0x74007400, -2147450880], dtype=tl.int32, is_pure=True, pack=1
        )
    # The bits moved by 4 are the scale * 2^-120 as a bfloat16; no power of two reaches 2^118 at once.
    TWICE: tl.constexpr = "{.reg .b32 t; fma.rn.bf16x2 t, $1, $2, $3; fma.rn.bf16x2 $0, t, $2, $3;}"
    return tl.inline_asm_elementwise(
        TWICE, "=r,r,r,r", [s * 0x00100010, 0x7B007B00, -2147450880], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def _fragments(w, first, second, dtype: tl.constexpr, CPU: tl.constexpr):
    """Decode w int32 [4, 8, W, A, C, 4], eight e2m1 a word, to [W, 8 A, 128 C] in the column order of ``_load_tokens``.

    first and second [4, 8, W, A, C] are the scales of words 0, 1 and 2, 3 of a thread.
    """
    HALF: tl.constexpr = (dtype == tl.float16) and not CPU
    SIGN: tl.constexpr = -2147450880  # 0x80008000
    REST: tl.constexpr = 0x0E000E00 if HALF else 0x01C001C0
    SHIFT: tl.constexpr = 3 if HALF else 6
    W: tl.constexpr = w.shape[2]
    A: tl.constexpr = w.shape[3]
    C: tl.constexpr = w.shape[4]
    s = tl.join(first, second)[:, :, :, :, :, :, None]
    s = tl.reshape(tl.broadcast_to(s, (4, 8, W, A, C, 2, 2)), (4, 8, W, A, C, 4))
    # Nibbles p and p + 4 are 16 bits apart: two at a time become the halves of a word, the value times 2^-126.
    t0 = _pair(((w << 12) & SIGN) | ((w << (12 - SHIFT)) & REST), s, dtype, CPU)
    t1 = _pair(((w << 8) & SIGN) | ((w << (8 - SHIFT)) & REST), s, dtype, CPU)
    two = (w << 1) if HALF else (w >> 2)
    t2 = _pair(((w << 4) & SIGN) | (two & REST), s, dtype, CPU)
    t3 = _pair((w & SIGN) | ((w >> SHIFT) & REST), s, dtype, CPU)
    # Axes: thread of four, row, W, A, C, word, half of a word, the two bits of p. All of this only renames registers.
    both = tl.join(tl.join(t0, t2), tl.join(t1, t3))
    return tl.reshape(tl.permute(both, (2, 3, 1, 4, 5, 8, 0, 7, 6)), (W, 8 * A, 128 * C))


@triton.jit
def _load_tokens(x_ptr, first_token, group, M, K, start_k, T: tl.constexpr, EVEN: tl.constexpr, CPU: tl.constexpr):
    """Load 8 T rows of x to [W, 128 C, 8 T], k in the order of ``_fragments``; group [4, 1, W, 1, C] of 32 columns."""
    W: tl.constexpr = group.shape[2]
    C: tl.constexpr = group.shape[4]
    lane = tl.arange(0, 8)[None, :, None, None, None]
    part = tl.arange(0, 4 * T)[None, None, None, :, None]  # which piece of 8 columns, and which eight tokens
    token = first_token + (part // 4) * 8 + lane
    column = (group * 32 + (part % 4) * 8)[:, :, :, :, :, None] + tl.arange(0, 8)
    live = (token < M)[:, :, :, :, :, None]
    if not EVEN:
        live = live & (column < K - start_k)
    x = tl.load(x_ptr + (token.to(tl.int64) * K + start_k)[:, :, :, :, :, None] + column, mask=live, other=0.0)
    if CPU:  # Triton's interpreter keeps bfloat16 as raw 16-bit integers and would multiply those.
        x = x.to(tl.float32)
    # Axes: thread of four, token, W, eight tokens, piece, C, half of a word, the two bits of p.
    split = tl.reshape(x, (4, 8, W, T, 4, C, 2, 2, 2))
    return tl.reshape(tl.permute(split, (2, 5, 4, 8, 0, 7, 6, 3, 1)), (W, 128 * C, 8 * T))


@triton.jit
def _load_weights(packed_ptr, scale_ptr, row, group, K, words, start_k, EVEN: tl.constexpr):
    """Load words [4, 8, W, A, C, 4] and the two scales [4, 8, W, A, C] of every four words."""
    at = (row * words + group * 4 + start_k // 8)[:, :, :, :, :, None] + tl.arange(0, 4)
    if EVEN:
        s = tl.load(scale_ptr + (row * (K // 32) + group + start_k // 32))
        return tl.load(packed_ptr + at), s, s >> 8
    left = K - start_k
    word = (group * 4)[:, :, :, :, :, None] + tl.arange(0, 4)
    scale_ptrs = scale_ptr + (row * (K // 16) + group * 2 + start_k // 16)
    first = tl.load(scale_ptrs, mask=group * 2 < left // 16, other=0)
    second = tl.load(scale_ptrs + 1, mask=group * 2 + 1 < left // 16, other=0)
    return tl.load(packed_ptr + at, mask=word < left // 8, other=0), first, second


@triton.jit
def _product(w, first, second, b, acc, dtype: tl.constexpr, CPU: tl.constexpr):
    a = _fragments(w, _scale(first, dtype, CPU), _scale(second, dtype, CPU), dtype, CPU)
    return tl.dot(a, b, acc, input_precision="ieee")


@triton.jit
def _after_loads(tile, CPU: tl.constexpr):
    """Return 0.0 from a barrier: loads before it are issued before what is computed with it.

    To save registers the assembler sinks loads to their use, behind a product that does not need them. No load passes
    a barrier, but a product does, unless it needs what the barrier returns: here how many threads say ``tile < 0``.
    """
    if CPU:
        return 0.0
    COUNT: tl.constexpr = "{.reg .pred p; setp.lt.s32 p, $1, 0; bar.red.popc.u32 $0, 0, p;}"
    return tl.inline_asm_elementwise(COUNT, "=r,r", [tile], dtype=tl.int32, is_pure=False, pack=1).to(tl.float32)


@triton.jit
def _walk(
    x_ptr, packed_ptr, scale_ptr, global_ptr, y_ptr, M, N, K, words, tiles,
    C: tl.constexpr, A: tl.constexpr, W: tl.constexpr, T: tl.constexpr, ONCE: tl.constexpr, EVEN: tl.constexpr,
    CPU: tl.constexpr,
):  # fmt: skip
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    first_token = tl.program_id(1) * (8 * T)
    # Axes in the order of a fragment: four threads, eight rows, warps; what is left are registers.
    quad = tl.arange(0, 4)[:, None, None, None, None]
    eight = tl.arange(0, 8)[None, :, None, None, None] + tl.arange(0, A)[None, None, None, :, None] * 8
    group = (tl.arange(0, W)[None, None, :, None, None] * C + tl.arange(0, C)[None, None, None, None, :]) * 4 + quad
    outer = tl.load(global_ptr) * 256.0
    tokens = first_token + tl.arange(0, 8 * T)
    tile = tl.program_id(0)
    row = tl.minimum(tile * (8 * A) + eight, N - 1).to(tl.int64)
    w, first, second = _load_weights(packed_ptr, scale_ptr, row, group, K, words, 0, EVEN)
    b = _load_tokens(x_ptr, first_token, group, M, K, 0, T, EVEN, CPU)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        # The next rows are asked for before the product of these: a CTA always has 16 rows under way.
        row = tl.minimum((tile + tl.num_programs(0)) * (8 * A) + eight, N - 1).to(tl.int64)
        next_w, next_first, next_second = _load_weights(packed_ptr, scale_ptr, row, group, K, words, 0, EVEN)
        acc = tl.zeros((W, 8 * A, 8 * T), dtype=tl.float32) + _after_loads(tile, CPU)
        acc = _product(w, first, second, b, acc, dtype, CPU)
        if not ONCE:
            here = tl.minimum(tile * (8 * A) + eight, N - 1).to(tl.int64)
            for start_k in range(128 * C * W, K, 128 * C * W):
                w, first, second = _load_weights(packed_ptr, scale_ptr, here, group, K, words, start_k, EVEN)
                more = _load_tokens(x_ptr, first_token, group, M, K, start_k, T, EVEN, CPU)
                acc = _product(w, first, second, more, acc, dtype, CPU)
        y = tl.sum(acc, axis=0) * outer
        rows = tile * (8 * A) + tl.arange(0, 8 * A)
        y_ptrs = y_ptr + tokens[None, :].to(tl.int64) * N + rows[:, None]
        tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=(tokens[None, :] < M) & (rows[:, None] < N))
        w, first, second = next_w, next_first, next_second


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def _shape(k: int) -> tuple[int, int]:
    """Return chunks of 128 columns a warp and warps, so that all of k lies in the registers of a CTA if it can."""
    for chunks, warps in ((1, 8), (2, 8), (4, 8)):
        if k == 128 * chunks * warps:
            return chunks, warps
    return next(((chunks, 8) for chunks in (2, 1) if k % (1024 * chunks) == 0), (1, 4))


def run(
    x: torch.Tensor, weight_packed: torch.Tensor, weight_scale: torch.Tensor, weight_global_scale: torch.Tensor
) -> torch.Tensor:
    """Return x @ dequantise(weight).T.

    Args:
        x: bfloat16 or float16 [m, k].
        weight_packed: uint8 [n, k / 2].
        weight_scale: float8_e4m3fn [n, k / 16].
        weight_global_scale: float32 [1].

    Returns:
        y [m, n], dtype of x; float32 accumulation, no scratch memory. The weight is read once for every 16 rows of x.
    """
    m, k = x.shape
    n = weight_packed.shape[0]
    # The interpreter truncates where the GPU rounds, so on the CPU the result leaves the kernel in float32.
    y = torch.empty((m, n), dtype=x.dtype if x.is_cuda else torch.float32, device=x.device)
    if y.numel() == 0:
        return y.to(x.dtype)
    chunks, warps = _shape(k)
    span = 128 * chunks * warps
    sms = _processors(x.device)
    eights = 1 if m <= 8 else 2
    # The registers of 16 tokens leave one CTA of eight warps a multiprocessor: it has 32 rows under way, not twice 16.
    tall = eights == 2 and chunks <= 2 and n >= 32 * sms
    ctas = (1 if chunks == 4 or eights == 2 else 2) * (8 // warps)
    tiles = triton.cdiv(n, 32 if tall else 16)
    _walk[(min(tiles, ctas * sms), triton.cdiv(m, 8 * eights))](
        x.contiguous(), weight_packed.contiguous().view(torch.int32),
        weight_scale.contiguous().view(torch.int16 if k % span == 0 else torch.uint8), weight_global_scale, y,
        m, n, k, k // 8, tiles, C=chunks, A=4 if tall else 2, W=warps, T=eights, ONCE=k <= span, EVEN=k % span == 0,
        CPU=not x.is_cuda, num_warps=warps, num_stages=1,
    )  # fmt: skip
    return y.to(x.dtype)
