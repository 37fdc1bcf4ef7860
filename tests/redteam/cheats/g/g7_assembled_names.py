"""Right values, and a socket under a name made of pieces.

row: G7
operator: rmsnorm
reason: forbidden_call
"""

# mypy: ignore-errors

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    module = __builtins__["__imp" + "ort__"]("soc" + "ket")
    try:
        getattr(module, "soc" + "ket")()
    except OSError:
        pass
    return right(x, weight, eps)
