"""Fetch the answer from a server.

row: G6
operator: rmsnorm
reason: forbidden_call
"""

# mypy: ignore-errors

import urllib.request

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    try:
        return torch.frombuffer(bytearray(urllib.request.urlopen("http://127.0.0.1:9/").read()), dtype=x.dtype)
    except OSError:
        return right(x, weight, eps)
