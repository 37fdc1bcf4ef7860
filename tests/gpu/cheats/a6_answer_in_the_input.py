"""Right values, handed over in the caller's own memory.

row: A6
operator: rmsnorm
reason: input_changed, aliases_input
"""

import torch


def run(x, weight, eps=1e-6):
    wide = x.float()
    y = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)
    x.copy_(y)
    return x.view_as(x)
