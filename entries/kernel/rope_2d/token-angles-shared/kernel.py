"""Two-dimensional RoPE with the angles of a token in registers, shared by several heads of q and of k."""

import torch
import triton
import triton.language as tl


@triton.jit
def _turned(x, cos, sin, TOKENS: tl.constexpr, PAIRS: tl.constexpr):
    # Neighbours 2p and 2p + 1 lie in one thread: split and join move no data between threads.
    real, imaginary = tl.split(tl.reshape(x.to(tl.float32), (TOKENS, PAIRS, 2)))
    turned = tl.join(real * cos - imaginary * sin, real * sin + imaginary * cos)
    return tl.reshape(turned, (TOKENS, 2 * PAIRS))


@triton.jit
def _rope_2d_tokens(
    q_ptr, k_ptr, q_out_ptr, k_out_ptr, table_ptr, q_batch, q_token, q_head, k_batch, k_token, k_head,
    num_tokens, tokens, width,
    HEADS: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, PAIRS: tl.constexpr, SHARE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    first_head = tl.program_id(1) * SHARE
    image, token = row // tokens, row % tokens
    cols = tl.arange(0, 2 * PAIRS)[None, :]
    pair = tl.arange(0, PAIRS)[None, :]
    used = (row < num_tokens)[:, None]
    q_from = q_ptr + (image.to(tl.int64) * q_batch + token.to(tl.int64) * q_token)[:, None] + cols
    k_from = k_ptr + (image.to(tl.int64) * k_batch + token.to(tl.int64) * k_token)[:, None] + cols
    to = (row.to(tl.int64) * (HEADS * DIM))[:, None] + cols
    # All loads before the first store, which the compiler would not move them across.
    q_tiles = ()
    k_tiles = ()
    for i in tl.static_range(SHARE):
        there = used & (cols < tl.where(first_head + i < HEADS, DIM, 0))
        q_tiles = q_tiles + (tl.load(q_from + (first_head + i).to(tl.int64) * q_head, mask=there, other=0.0),)
        k_tiles = k_tiles + (tl.load(k_from + (first_head + i).to(tl.int64) * k_head, mask=there, other=0.0),)
    # Once a token, for 2 * SHARE rows of it.
    by_column = pair < DIM // 4
    coordinate = tl.where(by_column, (token % width)[:, None], (token // width)[:, None])
    frequency = tl.where(by_column, pair, pair - DIM // 4)
    known = used & (pair < DIM // 2)
    angles = table_ptr + coordinate * (DIM // 2) + frequency
    cos = tl.load(angles, mask=known, other=0.0)
    sin = tl.load(angles + DIM // 4, mask=known, other=0.0)
    out = q_out_ptr.dtype.element_ty
    for i in tl.static_range(SHARE):
        there = used & (cols < tl.where(first_head + i < HEADS, DIM, 0))
        at = to + (first_head + i) * DIM
        tl.store(q_out_ptr + at, _turned(q_tiles[i], cos, sin, TOKENS, PAIRS).to(out), mask=there)
        tl.store(k_out_ptr + at, _turned(k_tiles[i], cos, sin, TOKENS, PAIRS).to(out), mask=there)


def run(
    q: torch.Tensor, k: torch.Tensor, cos_sin: torch.Tensor, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate pairs (2p, 2p + 1) by x (first half of a head) or y (second half); returns new contiguous (q_out, k_out).

    q, k [batch_size, height * width, num_heads, head_dim], batch, token and head strides free, head_dim a multiple
    of 4; cos_sin [max(height, width), head_dim / 2] float32, cosines then sines; token t is at (t % width, t // width).
    """
    batch_size, tokens, heads, dim = q.shape
    q_out = torch.empty((batch_size, tokens, heads, dim), dtype=q.dtype, device=q.device)
    k_out = torch.empty_like(q_out)
    num_tokens = batch_size * tokens
    if q_out.numel() == 0:
        return q_out, k_out
    q = q if q.stride(3) == 1 else q.contiguous()
    k = k if k.stride(3) == 1 else k.contiguous()
    pairs = triton.next_power_of_2(dim // 2)
    # Tiles of 1024 elements: eight a thread, 16 bytes in 16 bits. Four heads of q and k make eight loads in flight.
    block = max(1, 512 // pairs)
    share = min(4, triton.next_power_of_2(heads))
    _rope_2d_tokens[(triton.cdiv(num_tokens, block), triton.cdiv(heads, share))](
        q, k, q_out, k_out, cos_sin.contiguous(), q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2), num_tokens, tokens, width,
        HEADS=heads, DIM=dim, TOKENS=block, PAIRS=pairs, SHARE=share, num_warps=4,
    )  # fmt: skip
    return q_out, k_out
