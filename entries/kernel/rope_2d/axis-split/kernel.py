"""Two-dimensional RoPE of q and k in one launch, angles from a table per coordinate instead of per token."""

import torch
import triton
import triton.language as tl


@triton.jit
def _turn_rows(
    x_ptr, y_ptr, table_ptr, x_batch, x_token, x_head, num_rows, tokens, width, program,
    HEADS: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    rows = program.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    used = rows < num_rows
    image_token, head = rows // HEADS, rows % HEADS
    image, token = image_token // tokens, image_token % tokens
    cols = tl.arange(0, 2 * PAIRS)[None, :]
    inside = used[:, None] & (cols < DIM)
    source = x_ptr + (image * x_batch + token * x_token + head * x_head)[:, None]
    x = tl.load(source + cols, mask=inside, other=0.0).to(tl.float32)
    # Neighbours 2p and 2p + 1 lie in one thread: the split and the join below move no data between threads.
    real, imaginary = tl.split(tl.reshape(x, (ROWS, PAIRS, 2)))
    pair = tl.arange(0, PAIRS)[None, :]
    column, line = (token % width)[:, None], (token // width)[:, None]
    coordinate = tl.where(pair < DIM // 4, column, line)
    frequency = tl.where(pair < DIM // 4, pair, pair - DIM // 4)
    known = used[:, None] & (pair < DIM // 2)
    angles = table_ptr + coordinate * (DIM // 2) + frequency
    cos = tl.load(angles, mask=known, other=0.0)
    sin = tl.load(angles + DIM // 4, mask=known, other=0.0)
    turned = tl.join(real * cos - imaginary * sin, real * sin + imaginary * cos)
    y = tl.reshape(turned, (ROWS, 2 * PAIRS))
    tl.store(y_ptr + (rows * DIM)[:, None] + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _rope_2d(
    q_ptr, k_ptr, q_out_ptr, k_out_ptr, table_ptr, q_batch, q_token, q_head, k_batch, k_token, k_head,
    num_rows, tokens, width,
    HEADS: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    if tl.program_id(1) == 0:
        _turn_rows(
            q_ptr, q_out_ptr, table_ptr, q_batch, q_token, q_head, num_rows, tokens, width, program,
            HEADS, DIM, ROWS, PAIRS,
        )  # fmt: skip
    else:
        _turn_rows(
            k_ptr, k_out_ptr, table_ptr, k_batch, k_token, k_head, num_rows, tokens, width, program,
            HEADS, DIM, ROWS, PAIRS,
        )  # fmt: skip


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
    num_rows = batch_size * tokens * heads
    if num_rows == 0:
        return q_out, k_out
    q = q if q.stride(3) == 1 else q.contiguous()
    k = k if k.stride(3) == 1 else k.contiguous()
    pairs = triton.next_power_of_2(dim // 2)
    # 2048 elements a CTA: 16 a thread, two loads of 16 bytes. A SAM image has 83,000 rows of q: no short grids.
    rows = max(1, 1024 // pairs)
    _rope_2d[(triton.cdiv(num_rows, rows), 2)](
        q, k, q_out, k_out, cos_sin.contiguous(), q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2), num_rows, tokens, width,
        HEADS=heads, DIM=dim, ROWS=rows, PAIRS=pairs, num_warps=4,
    )  # fmt: skip
    return q_out, k_out
