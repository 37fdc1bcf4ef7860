"""Residual add and RMSNorm in CUDA C++: the row stays in registers, 16 bytes a load, one barrier."""

import ctypes
import functools
import pathlib
import shutil
import subprocess
import tempfile

import torch

_TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}

_CODE = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>

__device__ __forceinline__ float wide(float v) { return v; }
__device__ __forceinline__ float wide(__half v) { return __half2float(v); }
__device__ __forceinline__ float wide(__nv_bfloat16 v) { return __bfloat162float(v); }

template <typename T> __device__ __forceinline__ T narrow(float v);
template <> __device__ __forceinline__ float narrow<float>(float v) { return v; }
template <> __device__ __forceinline__ __half narrow<__half>(float v) { return __float2half_rn(v); }
template <> __device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16>(float v) { return __float2bfloat16_rn(v); }

template <typename T, int VEC> struct alignas(sizeof(T) * VEC) Pack { T v[VEC]; };

// Every warp adds up the partial sums of all warps itself: one barrier instead of two.
__device__ __forceinline__ float block_sum(float v, float* partial) {
    for (int step = 16; step; step >>= 1) v += __shfl_xor_sync(~0u, v, step);
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    if (lane == 0) partial[warp] = v;
    __syncthreads();
    v = lane < warps ? partial[lane] : 0.0f;
    for (int step = 16; step; step >>= 1) v += __shfl_xor_sync(~0u, v, step);
    return v;
}

template <typename T, int VEC, int COUNT>
__global__ void __launch_bounds__(512)
add_norm(const T* x, const T* residual, const T* weight, T* y, T* sum, int64_t x_row, int64_t r_row, int hidden,
         float eps) {
    using P = Pack<T, VEC>;
    __shared__ float partial[32];
    const int64_t row = blockIdx.x;
    const P* xs = reinterpret_cast<const P*>(x + row * x_row);
    const P* rs = reinterpret_cast<const P*>(residual + row * r_row);
    P* ys = reinterpret_cast<P*>(y + row * hidden);
    P* ss = reinterpret_cast<P*>(sum + row * hidden);
    const P* ws = reinterpret_cast<const P*>(weight);
    const int packs = hidden / VEC;
    P a[COUNT], b[COUNT], w[COUNT];
    // All loads are asked for before the first is used; the weight's too, which waits for nothing.
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const int at = threadIdx.x + i * blockDim.x;
        if (at < packs) { a[i] = xs[at]; b[i] = rs[at]; w[i] = ws[at]; }
    }
    float total[COUNT][VEC], squares = 0.0f;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const int at = threadIdx.x + i * blockDim.x;
        if (at >= packs) continue;
        P out;
#pragma unroll
        for (int e = 0; e < VEC; ++e) {
            total[i][e] = wide(a[i].v[e]) + wide(b[i].v[e]);
            squares += total[i][e] * total[i][e];
            out.v[e] = narrow<T>(total[i][e]);
        }
        ss[at] = out;
    }
    const float rstd = 1.0f / sqrtf(block_sum(squares, partial) / hidden + eps);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const int at = threadIdx.x + i * blockDim.x;
        if (at >= packs) continue;
        P out;
#pragma unroll
        for (int e = 0; e < VEC; ++e) out.v[e] = narrow<T>(total[i][e] * rstd * wide(w[i].v[e]));
        ys[at] = out;
    }
}

template <typename T, int VEC>
int launch(const void* x, const void* residual, const void* weight, void* y, void* sum, int64_t rows, int hidden,
           int64_t x_row, int64_t r_row, float eps, cudaStream_t stream) {
    const int packs = hidden / VEC;
    // Two packs a thread while that leaves at least a warp: 4 loads of 16 bytes in flight for each of them.
    int threads = ((packs + 1) / 2 + 31) / 32 * 32;
    threads = threads < 32 ? 32 : threads > 512 ? 512 : threads;
    const int count = (packs + threads - 1) / threads;
    const T *xs = static_cast<const T*>(x), *rs = static_cast<const T*>(residual), *ws = static_cast<const T*>(weight);
    T *ys = static_cast<T*>(y), *ss = static_cast<T*>(sum);
#define RUN(COUNT) add_norm<T, VEC, COUNT><<<rows, threads, 0, stream>>>(xs, rs, ws, ys, ss, x_row, r_row, hidden, eps)
    if (count <= 2) RUN(2);
    else if (count <= 4) RUN(4);
    else if (count <= 8) RUN(8);
    else if (VEC == 1 && count <= 32) RUN(VEC == 1 ? 32 : 8);
    else return -1;
#undef RUN
    return cudaGetLastError();
}

extern "C" int fused_add_rmsnorm(int type, int packed, const void* x, const void* residual, const void* weight, void* y,
                                 void* sum, int64_t rows, int hidden, int64_t x_row, int64_t r_row, float eps,
                                 void* stream) {
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
#define CASE(T, VEC) launch<T, VEC>(x, residual, weight, y, sum, rows, hidden, x_row, r_row, eps, on)
    if (type == 0) return packed ? CASE(float, 4) : CASE(float, 1);
    if (type == 1) return packed ? CASE(__half, 8) : CASE(__half, 1);
    return packed ? CASE(__nv_bfloat16, 8) : CASE(__nv_bfloat16, 1);
#undef CASE
}
"""


@functools.cache
def _library() -> ctypes.CDLL:
    """Compile for the device at hand and load the result; at the first call, a few seconds."""
    major, minor = torch.cuda.get_device_capability()
    own = "a" if major >= 9 else ""
    arch = f"{major}{minor}{own}"
    folder = pathlib.Path(tempfile.mkdtemp(prefix="add-rmsnorm-"))
    source, built = folder / "kernel.cu", folder / "kernel.so"
    source.write_text(_CODE, encoding="utf-8")
    command = [
        shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc", "-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC",
        f"-gencode=arch=compute_{arch},code=sm_{arch}", "-o", str(built), str(source),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"nvcc failed: {done.stderr[-800:]}")
    return ctypes.CDLL(str(built))


def run(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (rmsnorm(x + residual) * weight, x + residual) as new tensors.

    x and residual [num_tokens, hidden_size <= 16384], any row strides; weight [hidden_size]. The norm sees the float32
    sum. No scratch memory; safe to capture in a graph after its first call, which compiles.
    """
    num_tokens, hidden_size = x.shape
    y = torch.empty((num_tokens, hidden_size), dtype=x.dtype, device=x.device)
    total = torch.empty_like(y)
    if y.numel() == 0:
        return y, total
    x = x if x.stride(1) == 1 else x.contiguous()
    residual = residual if residual.stride(1) == 1 else residual.contiguous()
    weight = weight.contiguous()
    size = x.element_size()
    places = (x.data_ptr(), residual.data_ptr(), weight.data_ptr(), x.stride(0) * size, residual.stride(0) * size)
    packed = all(place % 16 == 0 for place in (*places, hidden_size * size))
    failed = _library().fused_add_rmsnorm(
        _TYPES[x.dtype], int(packed), *(ctypes.c_void_p(one.data_ptr()) for one in (x, residual, weight, y, total)),
        ctypes.c_int64(num_tokens), hidden_size, ctypes.c_int64(x.stride(0)), ctypes.c_int64(residual.stride(0)),
        ctypes.c_float(eps), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
    )  # fmt: skip
    if failed:
        raise RuntimeError(f"launch failed: CUDA error {failed}")
    return y, total
