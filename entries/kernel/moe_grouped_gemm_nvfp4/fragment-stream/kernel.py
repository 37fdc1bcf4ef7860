"""NVFP4 MoE grouped GEMM for decode: weights pass from memory into fragments of the matrix unit, no shared memory."""

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
    """Decode w int32 [4, 8, W, A, C, 4], eight e2m1 a word, to [W, 8 A, 128 C] in the column order of ``_tokens``.

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
def _tokens(x):
    """Bring x [4, 8, W, 4, C, 8], eight tokens in the order of memory, to [W, 128 C, 8] as ``_fragments`` counts k."""
    W: tl.constexpr = x.shape[2]
    C: tl.constexpr = x.shape[4]
    split = tl.reshape(x, (4, 8, W, 4, C, 2, 2, 2))
    return tl.reshape(tl.permute(split, (2, 4, 3, 7, 0, 6, 5, 1)), (W, 128 * C, 8))


@triton.jit
def _stream(
    x_ptr, packed_ptr, scale_ptr, global_ptr, offsets_ptr, y_ptr, num_tokens, num_experts, N, K, words,
    C: tl.constexpr, A: tl.constexpr, W: tl.constexpr, BLOCK_E: tl.constexpr, EVEN: tl.constexpr, CPU: tl.constexpr,
):  # fmt: skip
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    n_tiles = tl.cdiv(N, 8 * A)
    slot = tl.program_id(0) // n_tiles
    # One load and one sum find the expert of a row; tiles of a longer scan would each wait for it.
    e = tl.arange(0, BLOCK_E)
    expert = tl.sum((tl.load(offsets_ptr + 1 + e, mask=e < num_experts, other=num_tokens + 1) <= slot).to(tl.int32))
    start, end = tl.load(offsets_ptr + expert), tl.load(offsets_ptr + expert + 1)
    if (slot - start) % 8 != 0:  # the first of every eight rows of an expert does the work for all of them
        return
    # Axes in the order of a fragment: four threads, eight rows, warps; what is left are registers.
    quad = tl.arange(0, 4)[:, None, None, None, None]
    lane_row = tl.arange(0, 8)[None, :, None, None, None]
    warp = tl.arange(0, W)[None, None, :, None, None]
    c = tl.arange(0, C)[None, None, None, None, :]
    tile_row = (tl.program_id(0) % n_tiles) * (8 * A)
    row = tile_row + tl.arange(0, A)[None, None, None, :, None] * 8 + lane_row
    row = expert.to(tl.int64) * N + tl.minimum(row, N - 1)
    # A warp has 128 C columns of its own and a thread 32 of each 128: four words, two scales, 64 bytes of x.
    group = (warp * C + c) * 4 + quad
    packed_ptrs = packed_ptr + (row * words + group * 4)[:, :, :, :, :, None] + tl.arange(0, 4)
    token = (slot + lane_row).to(tl.int64)
    piece = tl.arange(0, 4)[None, None, None, :, None]
    column = (group * 32 + piece * 8)[:, :, :, :, :, None] + tl.arange(0, 8)
    x_ptrs = x_ptr + (token * K)[:, :, :, :, :, None] + column
    live = (token < end)[:, :, :, :, :, None]
    acc = tl.zeros((W, 8 * A, 8), dtype=tl.float32)
    for start_k in range(0, K, 128 * C * W):
        if EVEN:
            w = tl.load(packed_ptrs + start_k // 8)
            s = tl.load(scale_ptr + (row * (K // 32) + group + start_k // 32))
            first, second = s, s >> 8
            # The assembler would sink every load to its product, to save registers; none passes a barrier.
            tl.debug_barrier()
            x = tl.load(x_ptrs + start_k, mask=live, other=0.0)
        else:
            left = K - start_k
            word = (group * 4)[:, :, :, :, :, None] + tl.arange(0, 4)
            w = tl.load(packed_ptrs + start_k // 8, mask=word < left // 8, other=0)
            scale_ptrs = scale_ptr + (row * (K // 16) + group * 2 + start_k // 16)
            first = tl.load(scale_ptrs, mask=group * 2 < left // 16, other=0)
            second = tl.load(scale_ptrs + 1, mask=group * 2 + 1 < left // 16, other=0)
            x = tl.load(x_ptrs + start_k, mask=live & (column < left), other=0.0)
        a = _fragments(w, _scale(first, dtype, CPU), _scale(second, dtype, CPU), dtype, CPU)
        b = _tokens(x)
        if CPU:  # Triton's interpreter keeps bfloat16 as raw 16-bit integers and would multiply those.
            b = b.to(tl.float32)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    # The only exchange between warps: their sums over their own columns.
    y = tl.sum(acc, axis=0) * (tl.load(global_ptr + expert) * 256.0)
    rows = tile_row + tl.arange(0, 8 * A)
    tokens = slot + tl.arange(0, 8)
    y_ptrs = y_ptr + tokens[None, :].to(tl.int64) * N + rows[:, None]
    tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=(tokens[None, :] < end) & (rows[:, None] < N))


def run(
    x: torch.Tensor,
    weight_packed: torch.Tensor,
    weight_scale: torch.Tensor,
    weight_global_scale: torch.Tensor,
    expert_offsets: torch.Tensor,
) -> torch.Tensor:
    """Multiply the rows of every expert by its NVFP4 weight; no host synchronisation.

    Args:
        x: bfloat16 or float16 [num_tokens_expanded, k], sorted by expert.
        weight_packed: uint8 [num_experts, n, k / 2].
        weight_scale: float8_e4m3fn [num_experts, n, k / 16].
        weight_global_scale: float32 [num_experts].
        expert_offsets: int32 [num_experts + 1].

    Returns:
        y [num_tokens_expanded, n], dtype of x; float32 accumulation, no scratch memory.
    """
    num_tokens, k = x.shape
    num_experts, n, _ = weight_packed.shape
    # The interpreter truncates where the GPU rounds, so on the CPU the result leaves the kernel in float32.
    y = torch.empty((num_tokens, n), dtype=x.dtype if x.is_cuda else torch.float32, device=x.device)
    if y.numel() == 0:
        return y.to(x.dtype)
    # 16 rows a CTA; with k = 2,048 a thread has all of its 32 words under way at once.
    eights, warps = 2, 4
    chunks = next((c for c in (4, 2) if k % (128 * warps * c) == 0), 1)
    even = k % (128 * warps * chunks) == 0
    _stream[(num_tokens * triton.cdiv(n, 8 * eights),)](
        x.contiguous(), weight_packed.contiguous().view(torch.int32),
        weight_scale.contiguous().view(torch.int16 if even else torch.uint8), weight_global_scale, expert_offsets, y,
        num_tokens, num_experts, n, k, k // 8, C=chunks, A=eights, W=warps, BLOCK_E=triton.next_power_of_2(num_experts),
        EVEN=even, CPU=not x.is_cuda, num_warps=warps, num_stages=1,
    )  # fmt: skip
    return y.to(x.dtype)
