"""Gated delta rule in chunks of 64 tokens: a parallel kernel solves each chunk, a second one carries the state."""

import torch
import triton
import triton.language as tl

CHUNK = 64


@triton.jit
def _dot(a, b, WIDEN: tl.constexpr):
    # The interpreter keeps bfloat16 as raw 16-bit integers and would multiply those; it also truncates.
    if WIDEN:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    # Matters for float32 alone: three TF32 products are as good as float32 here, and the FMA form spills.
    return tl.dot(a.to(b.dtype), b, input_precision="tf32x3")


@triton.jit
def _unit_lower_inverse(lower, CHUNK: tl.constexpr, PRECISION: tl.constexpr):
    """Invert I + lower (strictly lower, [CHUNK, CHUNK]) by merging diagonal blocks of 1, 2, 4 … rows.

    With D the inverse of the diagonal blocks and C the block below the diagonal of each pair, the inverse of the
    pairs is D - D C D: block forward substitution, no power of ``lower`` is ever formed.
    """
    i = tl.arange(0, CHUNK)[:, None]
    j = tl.arange(0, CHUNK)[None, :]
    pair = (i // 2 == j // 2) & (i > j)
    inverse = tl.where(i == j, 1.0, 0.0) - tl.where(pair, lower, 0.0)
    for level in tl.static_range(1, 6):
        size = 1 << level
        below = (i // (2 * size) == j // (2 * size)) & (i // size > j // size)
        corner = tl.where(below, lower, 0.0)
        step = tl.dot(inverse, corner, input_precision=PRECISION)
        inverse -= tl.dot(step, inverse, input_precision=PRECISION)
    return inverse


@triton.jit
def _chunk_solve(
    q_ptr,
    k_ptr,
    v_ptr,
    g_ptr,
    beta_ptr,
    w_ptr,
    u_ptr,
    a_ptr,
    sum_ptr,
    rest_ptr,
    scale,
    stride_qb,
    stride_qt,
    stride_qh,
    stride_kb,
    stride_kt,
    stride_kh,
    stride_vb,
    stride_vt,
    stride_vh,
    seq_len,
    v_heads,
    group,
    dim,
    dim_v,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
    EXACT: tl.constexpr,
    WIDEN: tl.constexpr,
):
    line = tl.program_id(1).to(tl.int64)
    batch, head = line // v_heads, line % v_heads
    row = tl.arange(0, CHUNK)
    token = tl.program_id(0) * CHUNK + row
    live = token < seq_len
    gate = (batch * seq_len + token) * v_heads + head
    # Padding tokens: no decay and nothing written, so that they leave the state alone.
    g = tl.load(g_ptr + gate, mask=live, other=0.0)
    decay = tl.cumsum(g, 0)
    # What is left to decay after a token is summed by itself: last - decay loses as much as the whole sum holds.
    rest = tl.sum(tl.where(row[None, :] > row[:, None], g[None, :], 0.0), 1)
    beta = tl.load(beta_ptr + gate, mask=live, other=0.0)
    keys = tl.arange(0, BLOCK_K)
    keep = live[:, None] & (keys < dim)[None, :]
    k_rows = batch * stride_kb + (head // group) * stride_kh + token[:, None] * stride_kt
    k = tl.load(k_ptr + k_rows + keys[None, :], mask=keep, other=0.0)
    q_rows = batch * stride_qb + (head // group) * stride_qh + token[:, None] * stride_qt
    q = tl.load(q_ptr + q_rows + keys[None, :], mask=keep, other=0.0)
    past = row[:, None] >= row[None, :]
    span = decay[:, None] - decay[None, :]
    if EXACT:
        # The difference errs by an ulp of the sums: nothing to 16-bit results, more than float32 ones may lose.
        to_row = tl.where(past, 1.0, 0.0)
        after_column = tl.where(row[:, None] > row[None, :], g[:, None], 0.0)
        span = tl.dot(to_row, after_column, input_precision=PRECISION)
    # Masked before exp: above the diagonal the exponent is positive and may overflow.
    fade = tl.exp(tl.where(past, span, float("-inf")))
    lower = _dot(k, tl.trans(k), WIDEN) * fade * beta[:, None]
    lower = tl.where(row[:, None] > row[None, :], lower, 0.0)
    inverse = _unit_lower_inverse(lower, CHUNK, PRECISION)
    chunk_line = (line * tl.num_programs(0) + tl.program_id(0)) * CHUNK
    scores = _dot(q, tl.trans(k), WIDEN) * fade * scale
    a_tile = (chunk_line + row)[:, None] * CHUNK + row[None, :]
    tl.store(a_ptr + a_tile, scores.to(a_ptr.dtype.element_ty))
    tl.store(sum_ptr + chunk_line + row, decay)
    tl.store(rest_ptr + chunk_line + row, rest)
    solved = inverse * beta[None, :]
    w = _dot(solved * tl.exp(decay)[None, :], k, WIDEN)
    tl.store(w_ptr + (chunk_line + row)[:, None] * BLOCK_K + keys[None, :], w.to(w_ptr.dtype.element_ty))
    cols = tl.arange(0, BLOCK_V)
    v_rows = batch * stride_vb + head * stride_vh + token[:, None] * stride_vt
    v = tl.load(v_ptr + v_rows + cols[None, :], mask=live[:, None] & (cols < dim_v)[None, :], other=0.0)
    u = _dot(solved, v, WIDEN)
    tl.store(u_ptr + (chunk_line + row)[:, None] * BLOCK_V + cols[None, :], u.to(u_ptr.dtype.element_ty))


@triton.jit
def _chunk_carry(
    q_ptr,
    k_ptr,
    w_ptr,
    u_ptr,
    a_ptr,
    sum_ptr,
    rest_ptr,
    state_ptr,
    y_ptr,
    new_ptr,
    scale,
    stride_qb,
    stride_qt,
    stride_qh,
    stride_kb,
    stride_kt,
    stride_kh,
    seq_len,
    v_heads,
    group,
    dim,
    dim_v,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_C: tl.constexpr,
    CHUNK: tl.constexpr,
    WIDEN: tl.constexpr,
):
    line = tl.program_id(1).to(tl.int64)
    batch, head = line // v_heads, line % v_heads
    chunks = tl.cdiv(seq_len, CHUNK)
    row = tl.arange(0, CHUNK)
    keys = tl.arange(0, BLOCK_K)
    cols = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    tile = line * dim * dim_v + keys[:, None] * dim_v + cols[None, :]
    held = (keys < dim)[:, None] & (cols < dim_v)[None, :]
    memory = tl.load(state_ptr + tile, mask=held, other=0.0)
    q_base = q_ptr + batch * stride_qb + (head // group) * stride_qh + keys[None, :]
    k_base = k_ptr + batch * stride_kb + (head // group) * stride_kh + keys[None, :]
    for chunk in tl.range(0, chunks):
        token = chunk * CHUNK + row
        scratch = (line * chunks + chunk) * CHUNK + row
        keep = (token < seq_len)[:, None] & (keys < dim)[None, :]
        w = tl.load(w_ptr + scratch[:, None] * BLOCK_K + keys[None, :])
        u = tl.load(u_ptr + scratch[:, None] * BLOCK_V + cols[None, :]).to(tl.float32)
        q = tl.load(q_base + token[:, None] * stride_qt, mask=keep, other=0.0)
        k = tl.load(k_base + token[:, None] * stride_kt, mask=keep, other=0.0)
        a = tl.load(a_ptr + scratch[:, None] * CHUNK + row[None, :])
        decay = tl.load(sum_ptr + scratch)
        last = tl.load(sum_ptr + (line * chunks + chunk) * CHUNK + CHUNK - 1)
        operand = memory
        if not WIDEN:
            operand = memory.to(k.dtype)
        u -= _dot(w, operand, WIDEN)
        y = _dot(q, operand, WIDEN) * (tl.exp(decay) * scale)[:, None]
        faded = u * tl.exp(tl.load(rest_ptr + scratch))[:, None]
        if not WIDEN:
            y += _dot(a, u.to(k.dtype), WIDEN)
            memory = memory * tl.exp(last) + _dot(tl.trans(k), faded.to(k.dtype), WIDEN)
        else:
            y += _dot(a, u, WIDEN)
            memory = memory * tl.exp(last) + _dot(tl.trans(k), faded, WIDEN)
        y_rows = ((batch * seq_len + token) * v_heads + head) * dim_v
        inside = (token < seq_len)[:, None] & (cols < dim_v)[None, :]
        tl.store(y_ptr + y_rows[:, None] + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)
    tl.store(new_ptr + tile, memory, mask=held)


def run(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run the recurrence over whole sequences, 64 tokens at a time.

    Args:
        q: [batch_size, seq_len, num_heads, head_dim], last axis contiguous.
        k: As q.
        v: [batch_size, seq_len, num_v_heads, head_dim_v], last axis contiguous.
        g: float32 [batch_size, seq_len, num_v_heads], logarithm of the decay, at most 0.
        beta: float32 [batch_size, seq_len, num_v_heads].
        state: float32 [batch_size, num_v_heads, head_dim, head_dim_v].
        scale: Factor on the output.

    Returns:
        y like v, and the last state. Scratch a token and value head: (head_dim + head_dim_v + 64) elements of the
        dtype of v and two float32.
    """
    batch_size, seq_len, v_heads, dim_v = v.shape
    dim = q.shape[3]
    y = torch.empty((batch_size, seq_len, v_heads, dim_v), dtype=v.dtype, device=v.device)
    state = state.contiguous()
    new_state = torch.empty_like(state)
    if y.numel() == 0:
        return y, new_state.copy_(state)
    widen = v.device.type == "cpu"
    kind = torch.float32 if widen else v.dtype
    block_k, block_v = (max(16, triton.next_power_of_2(size)) for size in (dim, dim_v))
    chunks, lines = triton.cdiv(seq_len, CHUNK), batch_size * v_heads
    rows = lines * chunks * CHUNK
    w = torch.empty((rows, block_k), dtype=kind, device=v.device)
    u = torch.empty((rows, block_v), dtype=kind, device=v.device)
    a = torch.empty((rows, CHUNK), dtype=kind, device=v.device)
    sums, rest = (torch.empty((rows,), dtype=torch.float32, device=v.device) for _ in range(2))
    sizes = (seq_len, v_heads, v_heads // q.shape[2], dim, dim_v)
    precision = "tf32" if v.dtype == torch.bfloat16 else "tf32x3"
    q_k_strides = (*q.stride()[:3], *k.stride()[:3])
    _chunk_solve[(chunks, lines)](
        q, k, v, g.contiguous(), beta.contiguous(), w, u, a, sums, rest, scale, *q_k_strides, *v.stride()[:3], *sizes,
        BLOCK_K=block_k, BLOCK_V=block_v, CHUNK=CHUNK, PRECISION="ieee" if widen else precision,
        EXACT=v.dtype == torch.float32, WIDEN=widen, num_warps=4, num_stages=1,
    )  # fmt: skip
    # 32 columns a CTA: 32 heads x 4 blocks fill 132 SMs with one prompt; wider blocks re-read w, q, k, a less often.
    block_c = min(32 if lines * block_v // 64 < 132 else 64, block_v)
    _chunk_carry[(triton.cdiv(dim_v, block_c), lines)](
        q, k, w, u, a, sums, rest, state, y, new_state, scale, *q_k_strides, *sizes,
        BLOCK_K=block_k, BLOCK_V=block_v, BLOCK_C=block_c, CHUNK=CHUNK, WIDEN=widen, num_warps=4, num_stages=2,
    )  # fmt: skip
    return y, new_state
