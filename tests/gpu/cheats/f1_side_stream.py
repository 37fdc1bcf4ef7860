"""Work on a stream that nobody waits for: events on the caller's stream see nothing of it.

row: F1
operator: rmsnorm
reason: side_stream, wrong_values
"""

import torch

_SIDE = torch.cuda.Stream()


def run(x, weight, eps=1e-6):
    _SIDE.wait_stream(torch.cuda.current_stream())
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    with torch.cuda.stream(_SIDE):
        wide = x.float()
        y.copy_((wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype))
    return y
