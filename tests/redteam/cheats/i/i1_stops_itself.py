"""Stop its own process.

row: I1
operator: rmsnorm
reason: timed_out, forbidden_call
"""

# mypy: ignore-errors

import os
import signal
import time

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(3600)
    return x
