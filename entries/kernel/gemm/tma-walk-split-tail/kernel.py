"""GEMM by resident CTAs with TMA loads; tiles left over after the last full round are cut along k."""

import functools

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _halves(total):
    """Cut [M, N] into the left and the right half of its columns; registers are renamed, nothing moves."""
    M: tl.constexpr = total.shape[0]
    N: tl.constexpr = total.shape[1]
    return tl.split(tl.permute(tl.reshape(total, (M, 2, N // 2)), (0, 2, 1)))


@triton.jit
def _put(part, y_ptr, row, col, m, n, shift: tl.constexpr):
    rows, cols = tl.arange(0, part.shape[0]) + row, tl.arange(0, part.shape[1]) + shift + col
    inside = (rows < m)[:, None] & (cols < n)[None, :]
    tl.store(y_ptr + rows.to(tl.int64)[:, None] * n + cols[None, :], part.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _put_wide(total, y_ptr, row, col, m, n, wide: tl.constexpr):
    """Store columns a piece at a time: a piece passes through shared memory that the stages leave free."""
    left, right = _halves(total)
    HALF: tl.constexpr = total.shape[1] // 2
    if wide:
        a, b = _halves(left)
        _put(a, y_ptr, row, col, m, n, 0)
        _put(b, y_ptr, row, col, m, n, HALF // 2)
        c, d = _halves(right)
        _put(c, y_ptr, row, col, m, n, HALF)
        _put(d, y_ptr, row, col, m, n, HALF + HALF // 2)
    else:
        _put(left, y_ptr, row, col, m, n, 0)
        _put(right, y_ptr, row, col, m, n, HALF)


@triton.jit
def _gemm_walk(
    a_desc, b_desc, y_ptr, part_ptr, m, n, k, whole, units, pieces, piece_steps,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, SPLIT: tl.constexpr,
    UPCAST: tl.constexpr,
):  # fmt: skip
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    steps = tl.cdiv(k, BLOCK_K)
    pid, ctas = tl.program_id(0), tl.num_programs(0)
    # What is whole comes in full rounds if anything is cut, so a CTA has one piece at most, and that last.
    mine = tl.cdiv(whole - pid, ctas) * steps
    if SPLIT:
        mine += tl.where(pid < units - whole, tl.minimum(piece_steps, steps - (pid % pieces) * piece_steps), 0)
    unit, step, first, count, row, col = pid - ctas, -1, 0, 0, 0, 0
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    # One loop over the steps of all units: the loads of the next one are under way while this one is stored.
    for _ in range(mine):
        step = tl.where(step == count - 1, 0, step + 1)
        if step == 0:
            unit += ctas
            tile, first, count = unit, 0, steps
            if SPLIT:
                if unit >= whole:
                    tile = whole + pid // pieces
                    first = (pid % pieces) * piece_steps
                    count = tl.minimum(piece_steps, steps - first)
            band = tile // (GROUP * tiles_n)
            height = tl.minimum(tiles_m - band * GROUP, GROUP)
            inside_band = tile % (GROUP * tiles_n)
            row = (band * GROUP + inside_band % height) * BLOCK_M
            col = (inside_band // height) * BLOCK_N
        at = (first + step) * BLOCK_K
        a, b = a_desc.load([row, at]), b_desc.load([at, col])
        if UPCAST:  # the CPU interpreter multiplies bfloat16 as if its bits were integers
            a, b = a.to(tl.float32), b.to(tl.float32)
        total = tl.dot(a, b, total, input_precision="ieee")
        if step == count - 1:
            if SPLIT:
                if unit < whole:
                    _put_wide(total, y_ptr, row, col, m, n, False)
                else:  # a matrix of its own for every piece
                    piece_ptr = part_ptr + pid * (BLOCK_M * BLOCK_N)
                    _put_wide(total, piece_ptr, 0, 0, BLOCK_M, BLOCK_N, True)
            else:
                _put_wide(total, y_ptr, row, col, m, n, False)
            total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)


@triton.jit
def _add_pieces(
    part_ptr, y_ptr, m, n, whole, pieces,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    # In the order of k, so the result is the same in every run.
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    within = (tl.program_id(0) % (BLOCK_M // ROWS)) * ROWS + tl.arange(0, ROWS)
    nth = tl.program_id(0) // (BLOCK_M // ROWS)
    tile = whole + nth
    band = tile // (GROUP * tiles_n)
    height = tl.minimum(tiles_m - band * GROUP, GROUP)
    inside_band = tile % (GROUP * tiles_n)
    rows = (band * GROUP + inside_band % height) * BLOCK_M + within
    lane = tl.arange(0, BLOCK_N)
    cols = (inside_band // height) * BLOCK_N + lane
    part_ptrs = part_ptr + nth * pieces * (BLOCK_M * BLOCK_N) + within[:, None] * BLOCK_N + lane[None, :]
    total = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for piece in range(pieces):
        total += tl.load(part_ptrs + piece * (BLOCK_M * BLOCK_N))
    inside = (rows < m)[:, None] & (cols < n)[None, :]
    tl.store(y_ptr + rows.to(tl.int64)[:, None] * n + cols[None, :], total.to(y_ptr.dtype.element_ty), mask=inside)


LEAST = 16
"""Steps of 64 of k that a piece has at least: with fewer its way through scratch memory costs more than it saves."""


def _plan(m: int, n: int, k: int, sms: int, least: int, dtype: torch.dtype) -> tuple[int, int, int, int, int, int]:
    """Return BLOCK_M, BLOCK_N, BLOCK_K, warps, stages and the pieces of a tile that is left over."""
    if dtype == torch.float32:
        block_m, block_n, block_k, warps, stages = 64, 64, 32, 4, 3
    else:
        block_m, block_n, block_k, warps, stages = 128, 256, 64, 8, 4
    wide = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    pieces = min(sms // (wide % sms) if wide % sms else 1, triton.cdiv(k, block_k) // least)
    if pieces > 1:
        return block_m, block_n, block_k, warps, stages, pieces
    narrow = triton.cdiv(m, 128) * triton.cdiv(n, 128)
    # A narrow tile reads a third more bytes for a product; it pays where the wide ones' last round is mostly empty.
    if dtype != torch.float32 and 1.15 * triton.cdiv(narrow, sms) < 2 * triton.cdiv(wide, sms):
        return 128, 128, 64, 8, 4, 1
    return block_m, block_n, block_k, warps, stages, 1


def _staged(rows: torch.Tensor) -> torch.Tensor:
    """Return rows as they are if the copy engine takes them (base and stride at multiples of 16 bytes), else a copy."""
    lane = 16 // rows.element_size()
    if rows.stride(1) == 1 and rows.stride(0) % lane == 0 and rows.data_ptr() % 16 == 0:
        return rows
    height, width = rows.shape
    wider = torch.empty((height, triton.cdiv(width, lane) * lane), dtype=rows.dtype, device=rows.device)
    return wider[:, :width].copy_(rows)


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply a [m, k] by b [k, n], new, in the dtype of a; float32 accumulation.

    Row strides are free, but an operand whose stride is no multiple of 16 bytes costs a copy. Scratch: at most one
    float32 tile a multiprocessor, 128 KiB each, and none where no tile is cut.
    """
    m, k = a.shape
    n = b.shape[1]
    # The interpreter truncates where the GPU rounds, so on the CPU the result leaves the kernel in float32.
    y = torch.empty((m, n), dtype=a.dtype if a.is_cuda else torch.float32, device=a.device)
    if y.numel() == 0:
        return y.to(a.dtype)
    a, b = _staged(a), _staged(b)
    sms = _processors(a.device)
    # On the CPU every k is cut, so that small shapes prove this path too.
    block_m, block_n, block_k, warps, stages, pieces = _plan(m, n, k, sms, LEAST if a.is_cuda else 1, a.dtype)
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    left_over = tiles % sms if pieces > 1 else 0
    steps = triton.cdiv(k, block_k)
    piece_steps = triton.cdiv(steps, pieces)
    pieces = triton.cdiv(steps, piece_steps)
    whole, units = tiles - left_over, tiles + left_over * (pieces - 1)
    part = torch.empty((left_over * pieces, block_m, block_n), dtype=torch.float32, device=a.device)
    a_desc = TensorDescriptor(a, [m, k], [a.stride(0), 1], [block_m, block_k])
    b_desc = TensorDescriptor(b, [k, n], [b.stride(0), 1], [block_k, block_n])
    _gemm_walk[(min(units, sms),)](
        a_desc, b_desc, y, part, m, n, k, whole, units, pieces, piece_steps, BLOCK_M=block_m, BLOCK_N=block_n,
        BLOCK_K=block_k, GROUP=8, SPLIT=left_over > 0, UPCAST=not a.is_cuda, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    if left_over:
        _add_pieces[(left_over * (block_m // 16),)](
            part, y, m, n, whole, pieces, BLOCK_M=block_m, BLOCK_N=block_n, GROUP=8, ROWS=16, num_warps=4
        )
    return y.to(a.dtype)
