"""Work on a stream that neither waits nor is waited for.

row: F1
operator: rmsnorm
reason: side_stream, wrong_values
"""

import torch

_SIDE = torch.cuda.Stream()


def run(x, weight, eps=1e-6):
    with torch.cuda.stream(_SIDE):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)
