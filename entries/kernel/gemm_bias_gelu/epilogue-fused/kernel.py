"""GEMM with bias and GELU in the epilogue: z never leaves the registers."""

import torch
import triton
import triton.language as tl


@triton.jit
def _gelu_erf(z):
    """Return z Phi(z) in float32; the tail is erfc by Abramowitz and Stegun 7.1.26, absolute error 1.5e-7."""
    magnitude = tl.abs(z) * 0.7071067811865476
    t = 1.0 / (1.0 + 0.3275911 * magnitude)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = 0.5 * series * tl.exp(-magnitude * magnitude)
    return z * tl.where(z < 0.0, tail, 1.0 - tail)


@triton.jit
def _gelu_tanh(z):
    magnitude = tl.abs(z)
    power = tl.exp(-1.5957691216 * (magnitude + 0.044715 * magnitude * magnitude * magnitude))
    return z * tl.where(z < 0.0, power, 1.0) / (1.0 + power)


@triton.jit
def _gemm_bias_gelu(
    x_ptr, weight_ptr, bias_ptr, y_ptr, m, n, k, stride_x, stride_weight,
    TANH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN_K: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    # Tiles in bands of GROUP rows, so that the CTAs resident together share their operands in L2.
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    band = program // (GROUP * tiles_n)
    height = tl.minimum(tiles_m - band * GROUP, GROUP)
    inside_band = program % (GROUP * tiles_n)
    rows = (band * GROUP + inside_band % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (inside_band // height) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    # Rows beyond the edge read the last row again: no mask in the loop, and their results are never stored.
    x_tile = x_ptr + tl.minimum(rows, m - 1).to(tl.int64)[:, None] * stride_x + inner[None, :]
    weight_tile = weight_ptr + tl.minimum(cols, n - 1).to(tl.int64)[None, :] * stride_weight + inner[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        if EVEN_K:
            x = tl.load(x_tile)
            weight = tl.load(weight_tile)
        else:
            x = tl.load(x_tile, mask=(inner < k - start)[None, :], other=0.0)
            weight = tl.load(weight_tile, mask=(inner < k - start)[:, None], other=0.0)
        if UPCAST:  # the CPU interpreter multiplies bfloat16 as if its bits were integers
            x, weight = x.to(tl.float32), weight.to(tl.float32)
        total = tl.dot(x, weight, total, input_precision="ieee")
        x_tile += BLOCK_K
        weight_tile += BLOCK_K
    z = total + tl.load(bias_ptr + cols, mask=cols < n, other=0.0).to(tl.float32)[None, :]
    y = _gelu_tanh(z) if TANH else _gelu_erf(z)
    inside = (rows < m)[:, None] & (cols < n)[None, :]
    target = y_ptr + rows.to(tl.int64)[:, None] * n + cols[None, :]
    tl.store(target, y.to(y_ptr.dtype.element_ty), mask=inside)


def _tile(m: int, dtype: torch.dtype) -> tuple[int, int, int, int, int]:
    """Return BLOCK_M, BLOCK_N, BLOCK_K, warps and stages."""
    if dtype == torch.float32:
        return 64, 64, 32, 4, 3
    if m <= 64:
        return 64, 64, 64, 4, 4
    # 96 KB of operands and at most 128 registers: two CTAs a multiprocessor, so that the GELU of one, which costs about
    # a quarter of its product, runs under the matrix unit of the other. 128 x 256 is better only without the GELU.
    return 128, 128, 64, 8, 3


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, tanh: int = 0) -> torch.Tensor:
    """Return gelu(x @ weight.T + bias), new, in the dtype of x; float32 accumulation.

    x [num_tokens, in_features], weight [out_features, in_features], row strides free; bias [out_features].
    """
    m, k = x.shape
    n = weight.shape[0]
    y = torch.empty((m, n), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x = x if x.stride(1) == 1 else x.contiguous()
    weight = weight if weight.stride(1) == 1 else weight.contiguous()
    block_m, block_n, block_k, warps, stages = _tile(m, x.dtype)
    _gemm_bias_gelu[(triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)](
        x, weight, bias, y, m, n, k, x.stride(0), weight.stride(0), TANH=bool(tanh),
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP=8,
        EVEN_K=k % block_k == 0, UPCAST=not x.is_cuda, num_warps=warps, num_stages=stages,
        maxnreg=128 if warps == 8 else None,
    )  # fmt: skip
    return y
