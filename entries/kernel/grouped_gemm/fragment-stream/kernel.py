"""Grouped GEMM for decode: weights pass from memory into fragments of the matrix unit, no shared memory, no stages."""

import torch
import triton
import triton.language as tl


@triton.jit
def _stream(
    x_ptr, weight_ptr, offsets_ptr, y_ptr, num_tokens, num_experts, N, K,
    C: tl.constexpr, A: tl.constexpr, W: tl.constexpr, BLOCK_E: tl.constexpr, EVEN: tl.constexpr, CPU: tl.constexpr,
):  # fmt: skip
    n_tiles = tl.cdiv(N, 8 * A)
    slot = tl.program_id(0) // n_tiles
    # One load and one sum find the expert of a row; a scan over tiles would hold up every load behind it.
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
    # A warp has 32 C columns of its own and a thread eight of each 32, 16 bytes.
    column = (((warp * C + c) * 4 + quad) * 8)[:, :, :, :, :, None] + tl.arange(0, 8)
    weight_ptrs = weight_ptr + (row * K)[:, :, :, :, :, None] + column
    token = (slot + lane_row).to(tl.int64)
    x_ptrs = x_ptr + (token * K)[:, :, :, :, :, None] + column
    live = (token < end)[:, :, :, :, :, None]
    acc = tl.zeros((W, 8 * A, 8), dtype=tl.float32)
    for start_k in range(0, K, 32 * C * W):
        if EVEN:
            w = tl.load(weight_ptrs + start_k)
            # The assembler would sink every load to its product, to save registers; none passes a barrier.
            tl.debug_barrier()
            x = tl.load(x_ptrs + start_k, mask=live, other=0.0)
        else:
            w = tl.load(weight_ptrs + start_k, mask=column < K - start_k, other=0.0)
            x = tl.load(x_ptrs + start_k, mask=live & (column < K - start_k), other=0.0)
        # The order of k is free if both sides share it: that in which a thread's eight columns are its fragments.
        # Axes: thread of four, row, W, A, C, and the three bits of the column; the last is a pair in one register.
        w = tl.reshape(w, (4, 8, W, A, C, 2, 2, 2))
        a = tl.reshape(tl.permute(w, (2, 3, 1, 4, 5, 6, 0, 7)), (W, 8 * A, 32 * C))
        x = tl.reshape(x, (4, 8, W, 1, C, 2, 2, 2))
        b = tl.reshape(tl.permute(x, (2, 3, 4, 5, 6, 0, 7, 1)), (W, 32 * C, 8))
        if CPU:  # Triton's interpreter keeps bfloat16 as raw 16-bit integers and would multiply those.
            a, b = a.to(tl.float32), b.to(tl.float32)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    # The only exchange between warps: their sums over their own columns.
    y = tl.sum(acc, axis=0)
    rows = tile_row + tl.arange(0, 8 * A)
    tokens = slot + tl.arange(0, 8)
    y_ptrs = y_ptr + tokens[None, :].to(tl.int64) * N + rows[:, None]
    tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=(tokens[None, :] < end) & (rows[:, None] < N))


def _shape(k: int) -> tuple[int, int]:
    """Return pieces of 32 columns a warp and warps: all of a row at once up to k = 2,048, else 2,048 at a time."""
    for pieces, warps in ((8, 8), (4, 8), (2, 8), (1, 8)):
        if k % (32 * pieces * warps) == 0:
            return pieces, warps
    return 1, 4


def run(x: torch.Tensor, weight: torch.Tensor, expert_offsets: torch.Tensor) -> torch.Tensor:
    """Multiply the rows of every expert by its weight transposed; no host synchronisation.

    Args:
        x: bfloat16 or float16 [num_tokens_expanded, k], sorted by expert.
        weight: [num_experts, n, k], dtype of x.
        expert_offsets: int32 [num_experts + 1].

    Returns:
        y [num_tokens_expanded, n], dtype of x; float32 accumulation, no scratch memory.
    """
    num_tokens, k = x.shape
    num_experts, n, _ = weight.shape
    # The interpreter truncates where the GPU rounds, so on the CPU the result leaves the kernel in float32.
    y = torch.empty((num_tokens, n), dtype=x.dtype if x.is_cuda else torch.float32, device=x.device)
    if y.numel() == 0:
        return y.to(x.dtype)
    pieces, warps = _shape(k)
    _stream[(num_tokens * triton.cdiv(n, 16),)](
        x.contiguous(), weight.contiguous(), expert_offsets, y, num_tokens, num_experts, n, k,
        C=pieces, A=2, W=warps, BLOCK_E=triton.next_power_of_2(num_experts), EVEN=k % (32 * pieces * warps) == 0,
        CPU=not x.is_cuda, num_warps=warps, num_stages=1,
    )  # fmt: skip
    return y.to(x.dtype)
