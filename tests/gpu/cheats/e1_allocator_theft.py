"""Compute nothing: take fresh memory and hope that somebody's answer was freed there.

row: E1
operator: rmsnorm
reason: wrong_values
"""

import torch


def run(x, weight, eps=1e-6):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)
