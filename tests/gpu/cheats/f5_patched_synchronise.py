"""Make synchronising do nothing, and work on a stream of one's own.

row: F5
operator: rmsnorm
reason: changed_environment, side_stream, wrong_values
"""

import torch

_SIDE = torch.cuda.Stream()
torch.cuda.synchronize = lambda device=None: None
torch.cuda.Stream.synchronize = lambda self: None


def run(x, weight, eps=1e-6):
    _SIDE.wait_stream(torch.cuda.current_stream())
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    with torch.cuda.stream(_SIDE):
        wide = x.float()
        y.copy_((wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype))
    return y
