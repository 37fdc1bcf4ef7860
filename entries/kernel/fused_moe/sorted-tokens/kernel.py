"""MoE block in four launches: group the slots by expert, gate+up with SiLU, down, weighted sum."""

import torch
import triton
import triton.language as tl


@triton.jit
def _group_slots(ids_ptr, offsets_ptr, slots_ptr, num_slots, num_experts, B: tl.constexpr):
    # A CTA an expert reads all ids: those below its own say where its group begins, its own are packed by a prefix sum.
    # No atomic counter, on which the tokens of a popular expert would queue, and a fixed order.
    expert = tl.program_id(0)
    below = tl.zeros((B,), dtype=tl.int32)
    for start in range(0, num_slots, B):
        at = start + tl.arange(0, B)
        below += (tl.load(ids_ptr + at, mask=at < num_slots, other=num_experts) < expert).to(tl.int32)
    place = tl.sum(below, axis=0)
    tl.store(offsets_ptr + expert, place)
    for start in range(0, num_slots, B):
        at = start + tl.arange(0, B)
        mine = (tl.load(ids_ptr + at, mask=at < num_slots, other=num_experts) == expert).to(tl.int32)
        count = tl.sum(mine, axis=0)
        if count > 0:
            tl.store(slots_ptr + place + tl.cumsum(mine, axis=0) - 1, at, mask=mine == 1)
        place += count
    if expert == num_experts - 1:
        tl.store(offsets_ptr + num_experts, place)


@triton.jit
def _find_tile(offsets_ptr, tile, num_experts, BLOCK_M: tl.constexpr, BLOCK_E: tl.constexpr):
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
def _dot(a, b, acc, CPU: tl.constexpr):
    if CPU:  # Triton's interpreter keeps bfloat16 as raw 16-bit integers and would multiply those.
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision="ieee")


@triton.jit
def _gate_up_silu(
    x_ptr, weight_ptr, offsets_ptr, slots_ptr, h_ptr, num_experts, top_k, I, H,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_E: tl.constexpr, EVEN_K: tl.constexpr,
    CPU: tl.constexpr,
):
    n_tiles = tl.cdiv(I, BLOCK_N)
    expert, start, end = _find_tile(offsets_ptr, tl.program_id(0) // n_tiles, num_experts, BLOCK_M, BLOCK_E)
    if expert >= num_experts:
        return
    rows = start + tl.arange(0, BLOCK_M)
    cols = (tl.program_id(0) % n_tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    token = tl.load(slots_ptr + tl.minimum(rows, end - 1)) // top_k
    weight_row = expert.to(tl.int64) * (2 * I) + tl.minimum(cols, I - 1)
    k = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + token.to(tl.int64)[:, None] * H + k[None, :]
    gate_ptrs = weight_ptr + weight_row[:, None] * H + k[None, :]
    up_ptrs = weight_ptr + (weight_row + I)[:, None] * H + k[None, :]
    gate = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    up = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start_k in range(0, H, BLOCK_K):
        if EVEN_K:
            x, g, u = tl.load(x_ptrs), tl.load(gate_ptrs), tl.load(up_ptrs)
        else:
            inside = k[None, :] < H - start_k
            x = tl.load(x_ptrs, mask=inside, other=0.0)
            g = tl.load(gate_ptrs, mask=inside, other=0.0)
            u = tl.load(up_ptrs, mask=inside, other=0.0)
        xt = tl.trans(x)
        gate = _dot(g, xt, gate, CPU)
        up = _dot(u, xt, up, CPU)
        x_ptrs += BLOCK_K
        gate_ptrs += BLOCK_K
        up_ptrs += BLOCK_K
    h = tl.trans(gate * up / (1.0 + tl.exp(-gate)))
    h_ptrs = h_ptr + rows.to(tl.int64)[:, None] * I + cols[None, :]
    tl.store(h_ptrs, h.to(h_ptr.dtype.element_ty), mask=(rows[:, None] < end) & (cols[None, :] < I))


@triton.jit
def _down(
    h_ptr, weight_ptr, offsets_ptr, slots_ptr, share_ptr, out_ptr, num_experts, H, I,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_E: tl.constexpr, EVEN_K: tl.constexpr,
    CPU: tl.constexpr,
):
    n_tiles = tl.cdiv(H, BLOCK_N)
    expert, start, end = _find_tile(offsets_ptr, tl.program_id(0) // n_tiles, num_experts, BLOCK_M, BLOCK_E)
    if expert >= num_experts:
        return
    rows = start + tl.arange(0, BLOCK_M)
    row = tl.minimum(rows, end - 1).to(tl.int64)
    cols = (tl.program_id(0) % n_tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    weight_row = expert.to(tl.int64) * H + tl.minimum(cols, H - 1)
    k = tl.arange(0, BLOCK_K)
    h_ptrs = h_ptr + row[:, None] * I + k[None, :]
    w_ptrs = weight_ptr + weight_row[:, None] * I + k[None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start_k in range(0, I, BLOCK_K):
        if EVEN_K:
            h, w = tl.load(h_ptrs), tl.load(w_ptrs)
        else:
            h = tl.load(h_ptrs, mask=k[None, :] < I - start_k, other=0.0)
            w = tl.load(w_ptrs, mask=k[None, :] < I - start_k, other=0.0)
        acc = _dot(w, tl.trans(h), acc, CPU)
        h_ptrs += BLOCK_K
        w_ptrs += BLOCK_K
    slot = tl.load(slots_ptr + row)
    acc = tl.trans(acc) * tl.load(share_ptr + slot)[:, None]
    # Rows go back to the place of their slot, so that the sum over top_k reads contiguous memory in a fixed order.
    out_ptrs = out_ptr + slot.to(tl.int64)[:, None] * H + cols[None, :]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=(rows[:, None] < end) & (cols[None, :] < H))


@triton.jit
def _sum_slots(out_ptr, y_ptr, H, TOP_K: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for slot in tl.static_range(TOP_K):
        total += tl.load(out_ptr + (token * TOP_K + slot) * H + cols, mask=cols < H, other=0.0).to(tl.float32)
    tl.store(y_ptr + token * H + cols, total.to(y_ptr.dtype.element_ty), mask=cols < H)


def _tile(mean_rows: int) -> tuple[int, int, int, int, int]:
    """Return BLOCK_M, BLOCK_N of gate and of up, BLOCK_N of down, BLOCK_K and warps."""
    # Never 128 rows, even where the mean group has them: real routing is skewed and most groups are far shorter.
    block_m = min(64, max(16, triton.next_power_of_2(mean_rows)))
    if block_m <= 32:
        return block_m, 64, 128, 128, 4
    return block_m, 128, 256, 64, 8


def run(
    x: torch.Tensor,
    gate_up_weight: torch.Tensor,
    down_weight: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
) -> torch.Tensor:
    """Apply the routed experts to x; no host synchronisation.

    Args:
        x: bfloat16 [num_tokens, hidden_size].
        gate_up_weight: [num_experts, 2 * intermediate_size, hidden_size], gate rows first.
        down_weight: [num_experts, hidden_size, intermediate_size].
        topk_ids: int32 [num_tokens, top_k].
        topk_weights: float32 [num_tokens, top_k].

    Returns:
        y [num_tokens, hidden_size], dtype of x. Scratch: top_k * (hidden_size + intermediate_size) elements a token.
    """
    num_tokens, hidden = x.shape
    num_experts, _, inner = down_weight.shape
    top_k = topk_ids.shape[1]
    slots = num_tokens * top_k
    # The interpreter truncates where the GPU rounds, so on the CPU results leave the kernels in float32.
    made = {"dtype": x.dtype if x.is_cuda else torch.float32, "device": x.device}
    y = torch.empty((num_tokens, hidden), **made)
    if y.numel() == 0:
        return y.to(x.dtype)
    x, gate_up_weight, down_weight = x.contiguous(), gate_up_weight.contiguous(), down_weight.contiguous()
    h, out = torch.empty((slots, inner), **made), torch.empty((slots, hidden), **made)
    offsets, order = torch.empty(num_experts + 1 + slots, dtype=torch.int32, device=x.device).split(
        (num_experts + 1, slots)
    )
    block = min(4096, max(32, triton.next_power_of_2(slots)))
    _group_slots[(num_experts,)](
        topk_ids.contiguous(), offsets, order, slots, num_experts, B=block, num_warps=max(1, block // 512)
    )
    block_m, block_n, block_n_down, block_k, warps = _tile(slots // num_experts)
    tiles = min(slots, slots // block_m + min(num_experts, slots))
    bins = triton.next_power_of_2(num_experts)
    stages = 4 if block_k == 64 else 3  # 160 KB or less
    shape = {"BLOCK_M": block_m, "BLOCK_E": bins, "CPU": not x.is_cuda, "num_warps": warps, "num_stages": stages}
    _gate_up_silu[(tiles * triton.cdiv(inner, block_n),)](
        x, gate_up_weight, offsets, order, h, num_experts, top_k, inner, hidden, BLOCK_N=block_n, BLOCK_K=block_k,
        EVEN_K=hidden % block_k == 0, **shape,
    )
    _down[(tiles * triton.cdiv(hidden, block_n_down),)](
        h, down_weight, offsets, order, topk_weights.contiguous(), out, num_experts, hidden, inner,
        BLOCK_N=block_n_down, BLOCK_K=block_k, EVEN_K=inner % block_k == 0, **shape,
    )
    _sum_slots[(num_tokens, triton.cdiv(hidden, 2048))](out, y, hidden, TOP_K=top_k, BLOCK=2048, num_warps=4)
    return y.to(x.dtype)
