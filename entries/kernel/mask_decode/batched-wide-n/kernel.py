"""Mask decoding as a persistent wide-N product: queries stay on chip, pixels stream past once."""

import torch
import triton
import triton.language as tl


@triton.jit
def _mask_decode_wide(
    q_ptr,
    f_ptr,
    m_ptr,
    stride_qb,
    stride_qm,
    stride_fb,
    stride_fk,
    num_queries,
    channels,
    num_pixels,
    num_tiles,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WIDEN: tl.constexpr,
):
    batch = tl.program_id(2).to(tl.int64)
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    ks = tl.arange(0, BLOCK_K)
    in_rows = rows < num_queries
    in_k = ks < channels
    q = tl.load(
        q_ptr + batch * stride_qb + rows[:, None].to(tl.int64) * stride_qm + ks[None, :],
        mask=in_rows[:, None] & in_k[None, :],
        other=0.0,
    )
    f_base = f_ptr + batch * stride_fb + ks[:, None].to(tl.int64) * stride_fk
    m_base = m_ptr + (batch * num_queries + rows[:, None]) * num_pixels
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    f = tl.load(f_base + cols[None, :], mask=in_k[:, None] & (cols < num_pixels)[None, :], other=0.0)
    # The next tile waits in registers while this one is multiplied and stored. A two-stage cp.async pipeline would
    # issue that load after the store, and three stages of 32 KiB do not fit beside 128 KiB of queries.
    for _ in tl.range(tl.program_id(0), num_tiles, tl.num_programs(0), num_stages=1):
        ahead = cols + tl.num_programs(0) * BLOCK_N
        f_ahead = tl.load(f_base + ahead[None, :], mask=in_k[:, None] & (ahead < num_pixels)[None, :], other=0.0)
        if WIDEN:  # the interpreter cannot multiply bfloat16
            acc = tl.dot(q.to(tl.float32), f.to(tl.float32), input_precision="ieee")
        else:
            acc = tl.dot(q, f)
        keep = in_rows[:, None] & (cols < num_pixels)[None, :]
        tl.store(m_base + cols[None, :], acc.to(m_ptr.dtype.element_ty), mask=keep)
        cols = ahead
        f = f_ahead


def _tiles(num_queries: int, channels: int) -> tuple[int, int, int, int]:
    """Return (BLOCK_M, BLOCK_N, BLOCK_K, warps): queries at most 128 KiB, a pixel tile at most 32 KiB."""
    block_k = max(16, triton.next_power_of_2(channels))
    block_m = min(256, max(16, triton.next_power_of_2(num_queries)))
    while block_m * block_k > 65536:
        block_m //= 2
    block_n = 128
    while block_n > 16 and (block_k * block_n > 16384 or block_m * block_n > 16384):
        block_n //= 2
    return block_m, block_n, block_k, 8 if block_m * block_n + block_k * block_n > 16384 else 4


def run(queries: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
    """Multiply queries [batch, num_queries, channels] by features [batch, channels, num_pixels]; new tensor."""
    batch, num_queries, channels = queries.shape
    num_pixels = features.shape[2]
    masks = torch.empty((batch, num_queries, num_pixels), dtype=queries.dtype, device=queries.device)
    if masks.numel() == 0:
        return masks
    if queries.stride(2) != 1:
        queries = queries.contiguous()
    if features.stride(2) != 1:
        features = features.contiguous()
    block_m, block_n, block_k, warps = _tiles(num_queries, channels)
    num_tiles, m_tiles = triton.cdiv(num_pixels, block_n), triton.cdiv(num_queries, block_m)
    resident = max(1, min(4, 98304 // (block_m * block_k + block_n * (block_k + block_m))))
    sms = torch.cuda.get_device_properties(queries.device).multi_processor_count if queries.is_cuda else 2
    slots = max(1, sms * resident // (m_tiles * batch))
    programs = triton.cdiv(num_tiles, triton.cdiv(num_tiles, slots))  # the same number of tiles for every program
    _mask_decode_wide[(programs, m_tiles, batch)](
        queries,
        features,
        masks,
        queries.stride(0),
        queries.stride(1),
        features.stride(0),
        features.stride(1),
        num_queries,
        channels,
        num_pixels,
        num_tiles,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        WIDEN=not queries.is_cuda,
        num_warps=warps,
    )
    return masks
