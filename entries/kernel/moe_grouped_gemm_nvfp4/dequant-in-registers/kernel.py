"""MoE grouped GEMM with NVFP4 weights decoded in registers; weights are the left operand of the matrix unit."""

import torch
import triton
import triton.language as tl


@triton.jit
def _find_tile(offsets_ptr, tile, num_experts, BLOCK_M: tl.constexpr, BLOCK_E: tl.constexpr):
    # Groups are cut into tiles of BLOCK_M rows; find the expert of this tile, its first row and the end of its group.
    e = tl.arange(0, BLOCK_E)
    low = tl.load(offsets_ptr + e, mask=e < num_experts, other=0)
    high = tl.load(offsets_ptr + e + 1, mask=e < num_experts, other=0)
    after = tl.cumsum((high - low + BLOCK_M - 1) // BLOCK_M, axis=0)
    expert = tl.sum((after <= tile).to(tl.int32), axis=0)
    first_tile = tl.max(tl.where(after <= tile, after, 0), axis=0)
    mine = e == expert
    start = tl.sum(tl.where(mine, low, 0), axis=0) + (tile - first_tile) * BLOCK_M
    return expert, start, tl.sum(tl.where(mine, high, 0), axis=0)


@triton.jit
def _decode(w, s, dtype: tl.constexpr, CPU: tl.constexpr):
    """Decode w int32 [N, J], eight e2m1 a word, times s [N, J] to [N, 8 J]; columns in the order of ``_match``.

    s is the scale * 2^118 (float16: 2^6) twice in a word, as a pair of dtype; on the CPU a float32.
    """
    HALF: tl.constexpr = (dtype == tl.float16) and not CPU
    SIGN: tl.constexpr = -2147450880  # 0x80008000
    REST: tl.constexpr = 0x0E000E00 if HALF else 0x01C001C0
    SHIFT: tl.constexpr = 3 if HALF else 6
    # Nibbles p and p + 4 are 16 bits apart: two at a time go to the two halves of a word. The sign goes to the top of
    # a half, the other three bits across its exponent and mantissa: the value times 2^-126 (float16: 2^-14).
    t0 = _times(((w << 12) & SIGN) | ((w << (12 - SHIFT)) & REST), s, dtype, CPU)
    t1 = _times(((w << 8) & SIGN) | ((w << (8 - SHIFT)) & REST), s, dtype, CPU)
    two = (w << 1) if HALF else (w >> 2)
    t2 = _times(((w << 4) & SIGN) | (two & REST), s, dtype, CPU)
    t3 = _times((w & SIGN) | ((w >> SHIFT) & REST), s, dtype, CPU)
    # All of this only renames registers, once columns are counted as the matrix unit hands them to threads: thread t
    # of four owns columns 2t, 2t + 1 of every eight, and gets word t of every four.
    both = tl.join(tl.join(t0, t2), tl.join(t1, t3))
    both = tl.reshape(both, (w.shape[0], w.shape[1] // 4, 4, 2, 4))
    return tl.reshape(tl.permute(both, (0, 1, 4, 2, 3)), (w.shape[0], w.shape[1] * 8))


@triton.jit
def _times(r, s, dtype: tl.constexpr, CPU: tl.constexpr):
    if CPU:
        low = (r << 16).to(tl.float32, bitcast=True) * s
        high = (r & -65536).to(tl.float32, bitcast=True) * s
    else:
        FMA: tl.constexpr = "fma.rn.f16x2 $0, $1, $2, $3;" if dtype == tl.float16 else "fma.rn.bf16x2 $0, $1, $2, $3;"
        r = tl.inline_asm_elementwise(FMA, "=r,r,r,r", [r, s, -2147450880], dtype=tl.int32, is_pure=True, pack=1)
        low = r.to(tl.int16).to(dtype, bitcast=True)
        high = (r >> 16).to(tl.int16).to(dtype, bitcast=True)
    return tl.join(low, high)


@triton.jit
def _match(x):
    """Bring the columns of x [M, K] into the order that ``_decode`` returns, 32 at a time."""
    blocks = tl.reshape(x, (x.shape[0], x.shape[1] // 32, 4, 2, 4))
    return tl.reshape(tl.permute(blocks, (0, 1, 4, 2, 3)), (x.shape[0], x.shape[1]))


@triton.jit
def _scale(s, dtype: tl.constexpr, CPU: tl.constexpr):
    """Return e4m3 bytes s as ``_decode`` wants them; all steps are exact, also for subnormal scales."""
    if CPU:
        return ((s & 127).to(tl.int16) << 7).to(tl.float16, bitcast=True).to(tl.float32) * 8.507059173023462e37
    s = (s & 127).to(tl.int32)
    if dtype == tl.float16:  # the bits moved by 7 are the scale * 2^-8
        FMA: tl.constexpr = "fma.rn.f16x2 $0, $1, $2, $3;"
        return tl.inline_asm_elementwise(
            FMA, "=r,r,r,r", [s * 0x00800080, 0x74007400, -2147450880], dtype=tl.int32, is_pure=True,
            pack=1,
        )
    # The bits moved by 4 are the scale * 2^-120 as a bfloat16; no power of two reaches 2^118 at once.
    TWICE: tl.constexpr = "{.reg .b32 t; fma.rn.bf16x2 t, $1, $2, $3; fma.rn.bf16x2 $0, t, $2, $3;}"
    return tl.inline_asm_elementwise(
        TWICE, "=r,r,r,r", [s * 0x00100010, 0x7B007B00, -2147450880], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def _dot(a, b, acc, CPU: tl.constexpr):
    if CPU:  # Triton's interpreter keeps bfloat16 as raw 16-bit integers and would multiply those.
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision="ieee")


@triton.jit
def _moe_nvfp4(
    x_ptr, packed_ptr, scale_ptr, global_ptr, offsets_ptr, y_ptr, num_experts, N, K, packed_stride, scale_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_E: tl.constexpr, EVEN_K: tl.constexpr,
    CPU: tl.constexpr,
):
    n_tiles = tl.cdiv(N, BLOCK_N)
    tile = tl.program_id(0) // n_tiles
    expert, start, end = _find_tile(offsets_ptr, tile, num_experts, BLOCK_M, BLOCK_E)
    if expert >= num_experts:
        return
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    cols = (tl.program_id(0) % n_tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = start + tl.arange(0, BLOCK_M)
    # Rows beyond the edge repeat the last valid one, so that no load needs a mask in the row direction.
    weight_row = expert.to(tl.int64) * N + tl.minimum(cols, N - 1)
    token_row = tl.minimum(rows, end - 1).to(tl.int64)
    word = tl.arange(0, BLOCK_K // 8)
    block = tl.arange(0, BLOCK_K // 16)
    k = tl.arange(0, BLOCK_K)
    packed_ptrs = packed_ptr + weight_row[:, None] * packed_stride + word[None, :]
    scale_ptrs = scale_ptr + weight_row[:, None] * scale_stride + block[None, :]
    x_ptrs = x_ptr + token_row[:, None] * K + k[None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start_k in range(0, K, BLOCK_K):
        if EVEN_K:
            w = tl.load(packed_ptrs)
            s = tl.load(scale_ptrs)
            x = tl.load(x_ptrs)
        else:
            w = tl.load(packed_ptrs, mask=word[None, :] < packed_stride - start_k // 8, other=0)
            s = tl.load(scale_ptrs, mask=block[None, :] < scale_stride - start_k // 16, other=0)
            x = tl.load(x_ptrs, mask=k[None, :] < K - start_k, other=0.0)
        s = tl.broadcast_to(_scale(s, dtype, CPU)[:, :, None], (BLOCK_N, BLOCK_K // 16, 2))
        s = tl.reshape(s, (BLOCK_N, BLOCK_K // 8))
        acc = _dot(_decode(w, s, dtype, CPU), tl.trans(_match(x)), acc, CPU)
        packed_ptrs += BLOCK_K // 8
        scale_ptrs += BLOCK_K // 16
        x_ptrs += BLOCK_K
    y = acc * (tl.load(global_ptr + expert) * 256.0)
    y_ptrs = y_ptr + rows.to(tl.int64)[:, None] * N + cols[None, :]
    tl.store(y_ptrs, tl.trans(y).to(y_ptr.dtype.element_ty), mask=(rows[:, None] < end) & (cols[None, :] < N))


def _tile(mean_rows: int) -> tuple[int, int, int, int, int]:
    """Return BLOCK_M, BLOCK_N, BLOCK_K, warps and stages."""
    # Never 128 rows, even where the mean group has them: real routing is skewed, most groups are far shorter, and
    # small CTAs overlap the decoding of one with the product of another.
    block_m = min(64, max(16, triton.next_power_of_2(mean_rows)))
    if block_m <= 32:
        return block_m, 64, 128, 4, 4
    return block_m, 128, 64, 4, 4


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
        y [num_tokens_expanded, n], dtype of x; float32 accumulation.
    """
    num_tokens, k = x.shape
    num_experts, n, _ = weight_packed.shape
    # The interpreter truncates where the GPU rounds, so on the CPU the result leaves the kernel in float32.
    y = torch.empty((num_tokens, n), dtype=x.dtype if x.is_cuda else torch.float32, device=x.device)
    if y.numel() == 0:
        return y.to(x.dtype)
    x = x.contiguous()
    packed = weight_packed.contiguous().view(torch.int32)
    scale = weight_scale.contiguous().view(torch.uint8)
    block_m, block_n, block_k, warps, stages = _tile(num_tokens // num_experts)
    # A group of c rows has ceil(c / block_m) tiles: over all groups at most this many, whatever the routing.
    tiles = min(num_tokens, num_tokens // block_m + min(num_experts, num_tokens))
    _moe_nvfp4[(tiles * triton.cdiv(n, block_n),)](
        x, packed, scale, weight_global_scale, expert_offsets, y, num_experts, n, k, packed.stride(1), scale.stride(1),
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, BLOCK_E=triton.next_power_of_2(num_experts),
        EVEN_K=k % block_k == 0, CPU=not x.is_cuda, num_warps=warps, num_stages=stages,
    )
    return y.to(x.dtype)
