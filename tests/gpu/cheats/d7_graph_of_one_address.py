"""Capture a CUDA graph over the first addresses, keyed by shape alone: it reads the wrong place when inputs move.

row: D7
operator: rmsnorm
reason: wrong_values
"""

import torch

_GRAPHS = {}


def _compute(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def run(x, weight, eps=1e-6):
    if not x.numel():
        return torch.empty_like(x)
    key = (x.dtype, x.shape, x.stride())
    if key not in _GRAPHS:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = _compute(x, weight, eps)
        _GRAPHS[key] = (graph, result, x, weight)
    graph, result, _, _ = _GRAPHS[key]
    graph.replay()
    return result.clone()
