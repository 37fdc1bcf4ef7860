"""Close every descriptor, and live on.

row: I1
operator: rmsnorm
reason: forged_protocol, crashed, exited
"""

# mypy: ignore-errors

import os
import time

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    os.closerange(0, 256)
    time.sleep(3600)
    return x
