"""Switch to TF32 inside each call and back again, so that no snapshot shows it.

row: C2
operator: gemm
reason: wrong_values
"""

import torch


def run(a, b):
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return torch.matmul(a, b)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
