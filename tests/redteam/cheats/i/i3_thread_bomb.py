"""Start threads for ever.

row: I3
operator: rmsnorm
reason: crashed, memory_limit, timed_out
"""

# mypy: ignore-errors

import threading
import time

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    while True:
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
