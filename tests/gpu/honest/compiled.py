"""The plain formula through torch.compile: generated kernels, compilers in child processes, caches on disk.

operator: rmsnorm
"""

import torch


@torch.compile(dynamic=True)
def _compute(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def run(x, weight, eps=1e-6):
    return _compute(x, weight, eps)
