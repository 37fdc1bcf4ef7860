"""Mask decoding as plain tiles with a pipelined walk over channels; query tiles of the same pixels run side by side."""

import torch
import triton
import triton.language as tl


@triton.jit
def _mask_decode_tiles(
    q_ptr, f_ptr, m_ptr, stride_qb, stride_qm, stride_fb, stride_fk, num_queries, num_pixels, m_tiles,
    CHANNELS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(1).to(tl.int64)
    # Query tiles are neighbours in the grid: the second one finds its pixels in L2.
    rows = (tl.program_id(0) % m_tiles) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (tl.program_id(0) // m_tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    in_rows, in_cols = rows < num_queries, cols < num_pixels
    q_from = q_ptr + batch * stride_qb + rows[:, None].to(tl.int64) * stride_qm + ks[None, :]
    f_from = f_ptr + batch * stride_fb + ks[:, None].to(tl.int64) * stride_fk + cols[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in tl.range(0, CHANNELS, BLOCK_K, num_stages=STAGES):
        there = ks < CHANNELS - start
        q = tl.load(q_from, mask=in_rows[:, None] & there[None, :], other=0.0)
        f = tl.load(f_from, mask=there[:, None] & in_cols[None, :], other=0.0)
        if WIDEN:  # the interpreter cannot multiply bfloat16
            acc = tl.dot(q.to(tl.float32), f.to(tl.float32), acc, input_precision="ieee")
        else:
            acc = tl.dot(q, f, acc, input_precision="ieee")
        q_from += BLOCK_K
        f_from += BLOCK_K * stride_fk
    target = m_ptr + (batch * num_queries + rows[:, None]) * num_pixels + cols[None, :]
    tl.store(target, acc.to(m_ptr.dtype.element_ty), mask=in_rows[:, None] & in_cols[None, :])


def run(queries: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
    """Multiply queries [batch, num_queries, channels] by features [batch, channels, num_pixels]; new tensor."""
    batch, num_queries, channels = queries.shape
    num_pixels = features.shape[2]
    masks = torch.empty((batch, num_queries, num_pixels), dtype=queries.dtype, device=queries.device)
    if masks.numel() == 0:
        return masks
    queries = queries if queries.stride(2) == 1 else queries.contiguous()
    features = features if features.stride(2) == 1 else features.contiguous()
    if queries.dtype == torch.float32:
        block_m, block_n, block_k, warps = 64, 64, 16, 4
    elif num_queries <= 64:
        block_m, block_n, block_k, warps = 64, 128, 64, 4
    else:
        block_m, block_n, block_k, warps = 128, 128, 64, 8
    block_m = min(block_m, max(16, triton.next_power_of_2(num_queries)))
    block_k = min(block_k, max(16, triton.next_power_of_2(channels)))
    m_tiles = triton.cdiv(num_queries, block_m)
    _mask_decode_tiles[(m_tiles * triton.cdiv(num_pixels, block_n), batch)](
        queries, features, masks, queries.stride(0), queries.stride(1), features.stride(0), features.stride(1),
        num_queries, num_pixels, m_tiles, CHANNELS=channels, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k,
        STAGES=3, WIDEN=not queries.is_cuda, num_warps=warps,
    )  # fmt: skip
    return masks
