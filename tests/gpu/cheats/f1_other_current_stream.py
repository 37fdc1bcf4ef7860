"""Leave another stream as the current one, so that whoever measures later looks at the wrong one.

row: F1
operator: rmsnorm
reason: changed_environment, side_stream, wrong_values
"""

import torch

torch.cuda.set_stream(torch.cuda.Stream())


def run(x, weight, eps=1e-6):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)
