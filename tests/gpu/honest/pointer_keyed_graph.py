"""A CUDA graph for each set of addresses, which reads the addresses anew and computes at every replay.

operator: rmsnorm
"""

import torch

_GRAPHS = {}


def _compute(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def run(x, weight, eps=1e-6):
    if not x.numel():
        return torch.empty_like(x)
    key = (x.data_ptr(), weight.data_ptr(), x.dtype, x.shape, x.stride(), eps)
    if key not in _GRAPHS:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            _compute(x, weight, eps)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = _compute(x, weight, eps)
        _GRAPHS[key] = (graph, result)
    graph, result = _GRAPHS[key]
    graph.replay()
    return result.clone()
