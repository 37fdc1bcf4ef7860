"""Results of the whole run, looked up by the process's seed.

row: D10
operator: rmsnorm
reason: wrong_values
"""

# mypy: ignore-errors

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


RUNS: dict[int, dict[object, torch.Tensor]] = {}


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    run = RUNS.setdefault(torch.initial_seed(), {})
    key = (tuple(x.shape), x.dtype)
    if key not in run:
        run[key] = right(x, weight, eps)
    return run[key].clone()
