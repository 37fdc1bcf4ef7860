"""MoE grouped GEMM on FP4 matrix units: activations become NVFP4 in a first kernel, both operands stay 4 bits wide."""

import torch
import triton
import triton.language as tl


@triton.jit
def _quantize_row(x_ptr, packed_ptr, scale_ptr, row_scale_ptr, K, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * K + k, mask=k < K, other=0.0).to(tl.float32)
    # The row scale is a power of two, so that dividing by it is exact; it puts the largest block scale at 224 to 448.
    amax = tl.maximum(tl.max(tl.abs(x), axis=0), 1e-30)
    row_scale = tl.exp2(tl.ceil(tl.log2(amax * (1.0 / 2688.0))))
    x = tl.reshape(x / row_scale, (BLOCK // 16, 16))
    scale = tl.div_rn(tl.max(tl.abs(x), axis=1), tl.full((BLOCK // 16,), 6.0, tl.float32)).to(tl.float8e4nv)
    step = scale.to(tl.float32)[:, None]
    a = tl.abs(x) / tl.where(step > 0, step, 1.0)
    # Ties go to the even code: the comparison is strict where the lower code is even.
    code = (a > 0.25).to(tl.int32) + (a >= 0.75).to(tl.int32) + (a > 1.25).to(tl.int32) + (a >= 1.75).to(tl.int32)
    code += (a > 2.5).to(tl.int32) + (a >= 3.5).to(tl.int32) + (a > 5.0).to(tl.int32)
    code = tl.where(step > 0, code, 0) + tl.where(x < 0, 8, 0)
    low, high = tl.split(tl.reshape(code, (BLOCK // 2, 2)))
    pair, block = tl.arange(0, BLOCK // 2), tl.arange(0, BLOCK // 16)
    tl.store(packed_ptr + row * (K // 2) + pair, (low | (high << 4)).to(tl.uint8), mask=pair < K // 2)
    tl.store(scale_ptr + row * (K // 16) + block, scale, mask=block < K // 16)
    tl.store(row_scale_ptr + row, row_scale)


@triton.jit
def _moe_fp4(
    a_ptr, a_scale_ptr, row_scale_ptr, w_ptr, w_scale_ptr, global_ptr, offsets_ptr, y_ptr,
    num_experts, N, K, packed_stride, scale_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_E: tl.constexpr, EVEN_K: tl.constexpr,
):
    n_tiles = tl.cdiv(N, BLOCK_N)
    tile = tl.program_id(0) // n_tiles
    e = tl.arange(0, BLOCK_E)
    low = tl.load(offsets_ptr + e, mask=e < num_experts, other=0)
    high = tl.load(offsets_ptr + e + 1, mask=e < num_experts, other=0)
    after = tl.cumsum((high - low + BLOCK_M - 1) // BLOCK_M, axis=0)
    expert = tl.sum((after <= tile).to(tl.int32), axis=0)
    if expert >= num_experts:
        return
    first_tile = tl.max(tl.where(after <= tile, after, 0), axis=0)
    end = tl.sum(tl.where(e == expert, high, 0), axis=0)
    rows = tl.sum(tl.where(e == expert, low, 0), axis=0) + (tile - first_tile) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (tl.program_id(0) % n_tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    weight_row = expert.to(tl.int64) * N + tl.minimum(cols, N - 1)
    token_row = tl.minimum(rows, end - 1).to(tl.int64)
    pair, block = tl.arange(0, BLOCK_K // 2), tl.arange(0, BLOCK_K // 16)
    w_ptrs = w_ptr + weight_row[:, None] * packed_stride + pair[None, :]
    ws_ptrs = w_scale_ptr + weight_row[:, None] * scale_stride + block[None, :]
    a_ptrs = a_ptr + token_row[None, :] * packed_stride + pair[:, None]
    as_ptrs = a_scale_ptr + token_row[:, None] * scale_stride + block[None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start_k in range(0, K, BLOCK_K):
        if EVEN_K:
            w, ws, a, s = tl.load(w_ptrs), tl.load(ws_ptrs), tl.load(a_ptrs), tl.load(as_ptrs)
        else:
            inside = block[None, :] < scale_stride - start_k // 16
            w = tl.load(w_ptrs, mask=pair[None, :] < packed_stride - start_k // 2, other=0)
            ws = tl.load(ws_ptrs, mask=inside, other=0.0)
            a = tl.load(a_ptrs, mask=pair[:, None] < packed_stride - start_k // 2, other=0)
            s = tl.load(as_ptrs, mask=inside, other=0.0)
        acc = tl.dot_scaled(w, ws, "e2m1", a, s, "e2m1", acc)
        w_ptrs += BLOCK_K // 2
        a_ptrs += BLOCK_K // 2
        ws_ptrs += BLOCK_K // 16
        as_ptrs += BLOCK_K // 16
    y = acc * (tl.load(global_ptr + expert) * tl.load(row_scale_ptr + token_row))[None, :]
    y_ptrs = y_ptr + rows.to(tl.int64)[:, None] * N + cols[None, :]
    tl.store(y_ptrs, tl.trans(y).to(y_ptr.dtype.element_ty), mask=(rows[:, None] < end) & (cols[None, :] < N))


def run(
    x: torch.Tensor,
    weight_packed: torch.Tensor,
    weight_scale: torch.Tensor,
    weight_global_scale: torch.Tensor,
    expert_offsets: torch.Tensor,
) -> torch.Tensor:
    """Quantise x to NVFP4 (a power-of-two scale per row), then multiply on FP4 matrix units; no host synchronisation.

    Args:
        x: bfloat16 or float16 [num_tokens_expanded, k], sorted by expert.
        weight_packed: uint8 [num_experts, n, k / 2].
        weight_scale: float8_e4m3fn [num_experts, n, k / 16].
        weight_global_scale: float32 [num_experts].
        expert_offsets: int32 [num_experts + 1].

    Returns:
        y [num_tokens_expanded, n], dtype of x. Scratch: 9/16 byte an element of x and 4 bytes a row.
    """
    num_tokens, k = x.shape
    num_experts, n, _ = weight_packed.shape
    y = torch.empty((num_tokens, n), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x, packed, scale = x.contiguous(), weight_packed.contiguous(), weight_scale.contiguous()
    a = torch.empty((num_tokens, k // 2), dtype=torch.uint8, device=x.device)
    a_scale = torch.empty((num_tokens, k // 16), dtype=torch.float8_e4m3fn, device=x.device)
    row_scale = torch.empty(num_tokens, dtype=torch.float32, device=x.device)
    block = max(16, triton.next_power_of_2(k))
    _quantize_row[(num_tokens,)](x, a, a_scale, row_scale, k, BLOCK=block, num_warps=4 if block <= 4096 else 8)
    block_m = min(128, max(16, triton.next_power_of_2(num_tokens // num_experts)))
    block_n, block_k = 128, 256
    tiles = min(num_tokens, num_tokens // block_m + min(num_experts, num_tokens))
    _moe_fp4[(tiles * triton.cdiv(n, block_n),)](
        a, a_scale, row_scale, packed, scale, weight_global_scale, expert_offsets, y, num_experts, n, k,
        packed.stride(1), scale.stride(1), BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k,
        BLOCK_E=triton.next_power_of_2(num_experts), EVEN_K=k % block_k == 0, num_warps=4, num_stages=4,
    )
    return y
