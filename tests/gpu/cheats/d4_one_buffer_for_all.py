"""Write every answer into the same buffer, so that the one before is gone.

row: D4
operator: rmsnorm
reason: reused_result
"""

import torch

_BUFFER = {}


def run(x, weight, eps=1e-6):
    wide = x.float()
    y = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)
    size = max(y.numel(), 1)
    if _BUFFER.get(x.dtype) is None or _BUFFER[x.dtype].numel() < size:
        _BUFFER[x.dtype] = torch.empty(1 << 20, dtype=x.dtype, device=x.device)
    kept = _BUFFER[x.dtype][: y.numel()].view(y.shape)
    kept.copy_(y)
    return kept
