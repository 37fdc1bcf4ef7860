"""Return an object that runs code when it is unpickled.

row: H4
operator: rmsnorm
reason: wrong_dtype
"""

# mypy: ignore-errors

import torch


class Payload:
    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return print, ("unpickled",)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> Payload:
    return Payload()
