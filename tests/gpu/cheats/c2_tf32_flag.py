"""Switch matrix products to TF32 by a flag, for the candidate and for everybody after it.

row: C2
operator: gemm
reason: wrong_values, changed_environment
"""

import torch

torch.backends.cuda.matmul.allow_tf32 = True


def run(a, b):
    return torch.matmul(a, b)
