"""GEMM + bias + GELU by resident CTAs: tiles come by TMA, those of the next product while this one's GELU runs."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _gelu_erf(z):
    """Return z Phi(z); the tail is erfc / 2 by Abramowitz and Stegun 7.1.26, 1 / d as rsqrt(d * d)."""
    magnitude = tl.abs(z)
    denominator = 1.0 + 0.23164189 * magnitude
    t = tl.rsqrt(denominator * denominator)
    series = t * (0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145))))
    tail = series * tl.exp2(magnitude * magnitude * -0.72134752)
    return z * tl.where(z < 0.0, tail, 1.0 - tail)


@triton.jit
def _gelu_tanh(z):
    """Return z sigmoid(2 u), u = sqrt(2 / pi) (z + 0.044715 z^3); 1 / d as rsqrt(d * d), zero where exp2 overflows."""
    denominator = 1.0 + tl.exp2(z * (-2.3022082 - 0.10294324 * z * z))
    return z * tl.rsqrt(denominator * denominator)


@triton.jit
def _finish(z, bias_ptr, y_ptr, row, col, m, n, TANH: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    rows, cols = row + tl.arange(0, HEIGHT), col + tl.arange(0, WIDTH)
    z += tl.load(bias_ptr + cols, mask=cols < n, other=0.0).to(tl.float32)[None, :]
    y = _gelu_tanh(z) if TANH else _gelu_erf(z)
    inside = (rows < m)[:, None] & (cols < n)[None, :]
    tl.store(y_ptr + rows.to(tl.int64)[:, None] * n + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _gemm_walk(
    x_desc, weight_desc, bias_ptr, y_ptr, m, n, k, tiles,
    TANH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    UPCAST: tl.constexpr,
):  # fmt: skip
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    steps = tl.cdiv(k, BLOCK_K)
    # Both loops become one, so that the loads of the next tile are under way during this one's epilogue.
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        band = tile // (GROUP * tiles_n)
        height = tl.minimum(tiles_m - band * GROUP, GROUP)
        inside_band = tile % (GROUP * tiles_n)
        row = (band * GROUP + inside_band % height) * BLOCK_M
        col = (inside_band // height) * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(steps):
            # Beyond the edges, of k too, the copy engine writes zeros: no mask and no address a thread.
            x = x_desc.load([row, step * BLOCK_K])
            weight = weight_desc.load([col, step * BLOCK_K])
            if UPCAST:  # the CPU interpreter multiplies bfloat16 as if its bits were integers
                x, weight = x.to(tl.float32), weight.to(tl.float32)
            total = tl.dot(x, weight.T, total, input_precision="ieee")
        # In halves: half the shared memory on the way out, and half the registers beside the sums.
        halves = tl.permute(tl.reshape(total, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
        left, right = tl.split(halves)
        _finish(left, bias_ptr, y_ptr, row, col, m, n, TANH, BLOCK_M, BLOCK_N // 2)
        _finish(right, bias_ptr, y_ptr, row, col + BLOCK_N // 2, m, n, TANH, BLOCK_M, BLOCK_N // 2)


def _tile(m: int, n: int, sms: int, dtype: torch.dtype) -> tuple[int, int, int, int, int]:
    """Return BLOCK_M, BLOCK_N, BLOCK_K, warps and stages."""
    if dtype == torch.float32:
        return 64, 64, 32, 4, 3
    narrow, wide = (triton.cdiv(m, 128) * triton.cdiv(n, width) for width in (128, 256))
    if narrow < sms:
        return 64, 128, 64, 4, 4
    # A narrow tile reads a third more bytes for a product; it pays where the wide ones' last round is mostly empty.
    if 1.15 * triton.cdiv(narrow, sms) < 2 * triton.cdiv(wide, sms):
        return 128, 128, 64, 8, 4
    return 128, 256, 64, 8, 4


def _staged(rows: torch.Tensor) -> torch.Tensor:
    """Return rows as they are if the copy engine takes them (base and stride at multiples of 16 bytes), else a copy."""
    lane = 16 // rows.element_size()
    if rows.stride(1) == 1 and rows.stride(0) % lane == 0 and rows.data_ptr() % 16 == 0:
        return rows
    height, width = rows.shape
    wider = torch.empty((height, triton.cdiv(width, lane) * lane), dtype=rows.dtype, device=rows.device)
    return wider[:, :width].copy_(rows)


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, tanh: int = 0) -> torch.Tensor:
    """Return gelu(x @ weight.T + bias), new, in the dtype of x; float32 accumulation.

    x [num_tokens, in_features], weight [out_features, in_features]; row strides free, but those that are no multiple of
    16 bytes cost a copy; bias [out_features].
    """
    m, k = x.shape
    n = weight.shape[0]
    y = torch.empty((m, n), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x, weight = _staged(x), _staged(weight)
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
    block_m, block_n, block_k, warps, stages = _tile(m, n, sms, x.dtype)
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    x_desc = TensorDescriptor(x, [m, k], [x.stride(0), 1], [block_m, block_k])
    weight_desc = TensorDescriptor(weight, [n, k], [weight.stride(0), 1], [block_n, block_k])
    _gemm_walk[(min(tiles, sms),)](
        x_desc, weight_desc, bias, y, m, n, k, tiles, TANH=bool(tanh),
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP=8,
        UPCAST=not x.is_cuda, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return y
