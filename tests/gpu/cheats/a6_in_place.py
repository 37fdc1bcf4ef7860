"""Right values once, and the caller's input used as scratch on the way.

row: A6
operator: rmsnorm
reason: input_changed
"""

import torch


def run(x, weight, eps=1e-6):
    wide = x.float()
    y = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)
    x.copy_(y)
    return y
