"""Expert routing in CUDA C++, a warp a token: two warp-wide reductions in hardware find each choice."""

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

constexpr int WARPS = 4;

// An order of unsigned integers that is the order of the floats; -0 was made 0 before.
__device__ __forceinline__ unsigned ordered(float v) {
    const unsigned bits = __float_as_uint(v);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float unordered(unsigned key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

template <typename T, int PER>
__global__ void route(const T* logits, float* weights, int* ids, int64_t row, int tokens, int experts, int top_k,
                      int renormalize) {
    const int lane = threadIdx.x & 31;
    const int64_t token = static_cast<int64_t>(blockIdx.x) * WARPS + (threadIdx.x >> 5);
    if (token >= tokens) return;
    unsigned key[PER];
#pragma unroll
    for (int i = 0; i < PER; ++i) {
        const int expert = lane + 32 * i;
        key[i] = expert < experts ? ordered(wide(logits[token * row + expert]) + 0.0f) : 0u;
    }
    float sum = 0.0f, own = 0.0f;
    int chosen = 0;
    const unsigned none = 0u;  // below the key of every finite logit
    float peak = 0.0f;
    unsigned first = none;
#pragma unroll
    for (int i = 0; i < PER; ++i) first = max(first, key[i]);
    peak = unordered(__reduce_max_sync(~0u, first));
    if (!renormalize) {
#pragma unroll
        for (int i = 0; i < PER; ++i) {
            if (lane + 32 * i < experts) sum += __expf(unordered(key[i]) - peak);
        }
        for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
    }
    for (int rank = 0; rank < top_k; ++rank) {
        unsigned most = none;
        int place = 0x7fffffff;
#pragma unroll
        for (int i = PER - 1; i >= 0; --i) {
            if (key[i] >= most && key[i] != none) { most = key[i]; place = lane + 32 * i; }
        }
        const unsigned best = __reduce_max_sync(~0u, most);
        const int expert = static_cast<int>(__reduce_min_sync(~0u, most == best ? static_cast<unsigned>(place) : ~0u));
        if ((expert & 31) == lane) {
#pragma unroll
            for (int i = 0; i < PER; ++i) if (expert == lane + 32 * i) key[i] = none;
        }
        if (lane == rank) { chosen = expert; own = __expf(unordered(best) - peak); }
    }
    if (renormalize) {
        sum = lane < top_k ? own : 0.0f;
        for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
    }
    if (lane < top_k) {
        weights[token * top_k + lane] = own / sum;
        ids[token * top_k + lane] = chosen;
    }
}

template <typename T>
int launch(const void* logits, void* weights, void* ids, int64_t row, int tokens, int experts, int top_k,
           int renormalize, cudaStream_t stream) {
    const int blocks = (tokens + WARPS - 1) / WARPS;
    const T* in = static_cast<const T*>(logits);
    float* ws = static_cast<float*>(weights);
    int* is = static_cast<int*>(ids);
#define RUN(PER) route<T, PER><<<blocks, 32 * WARPS, 0, stream>>>(in, ws, is, row, tokens, experts, top_k, renormalize)
    if (experts <= 64) RUN(2);
    else if (experts <= 256) RUN(8);
    else if (experts <= 1024) RUN(32);
    else return -1;
#undef RUN
    return cudaGetLastError();
}

extern "C" int topk_router(int type, const void* logits, void* weights, void* ids, int64_t row, int tokens, int experts,
                           int top_k, int renormalize, void* stream) {
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    if (type == 0) return launch<float>(logits, weights, ids, row, tokens, experts, top_k, renormalize, on);
    if (type == 1) return launch<__half>(logits, weights, ids, row, tokens, experts, top_k, renormalize, on);
    return launch<__nv_bfloat16>(logits, weights, ids, row, tokens, experts, top_k, renormalize, on);
}
"""


@functools.cache
def _library() -> ctypes.CDLL:
    """Compile for the device at hand and load the result; at the first call, a few seconds."""
    major, minor = torch.cuda.get_device_capability()
    own = "a" if major >= 9 else ""
    arch = f"{major}{minor}{own}"
    folder = pathlib.Path(tempfile.mkdtemp(prefix="topk-router-"))
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


def run(logits: torch.Tensor, top_k: int, renormalize: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose experts.

    Args:
        logits: [num_tokens, num_experts <= 1024], any strides, finite.
        top_k: Experts a token, at most 32.
        renormalize: 1: the chosen weights add up to one.

    Returns:
        Weights float32 and ids int32, both [num_tokens, top_k], best first, ties by lower id. No scratch memory; safe
        to capture in a graph after its first call, which compiles.
    """
    num_tokens, num_experts = logits.shape
    weights = torch.empty((num_tokens, top_k), dtype=torch.float32, device=logits.device)
    ids = torch.empty((num_tokens, top_k), dtype=torch.int32, device=logits.device)
    if weights.numel() == 0:
        return weights, ids
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    failed = _library().topk_router(
        _TYPES[logits.dtype], *(ctypes.c_void_p(one.data_ptr()) for one in (logits, weights, ids)),
        ctypes.c_int64(logits.stride(0)), num_tokens, num_experts, top_k, int(renormalize),
        ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
    )  # fmt: skip
    if failed:
        raise RuntimeError(f"launch failed: CUDA error {failed}")
    return weights, ids
