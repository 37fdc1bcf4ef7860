// Copyright (c) 2026 The kernel-kb authors
#include <cuda_runtime.h>

constexpr int TILE = 16;

__device__ float product(const float *a, const float *b, int k) { return a[k] * b[k]; }

__global__ void matmul_kernel(const float *A, const float *B, float *C, int M, int N, int K) {
  const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  if (row >= M || column >= N) return;
  float sum = 0.0f;
  for (int k = 0; k < K; k++) sum += A[row * K + k] * B[k * N + column];
  C[row * N + column] = sum;
}

void matmul(const float *A, const float *B, float *C, int M, int N, int K) {
  matmul_kernel<<<dim3((N + TILE - 1) / TILE, (M + TILE - 1) / TILE), dim3(TILE, TILE)>>>(A, B, C, M, N, K);
}
