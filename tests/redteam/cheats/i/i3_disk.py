"""Fill the disk with large files.

row: I3
operator: rmsnorm
reason: disk_limit
"""

# mypy: ignore-errors

import itertools
import os
import time

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    for number in itertools.count():
        try:
            with open(os.path.join(os.environ["TMPDIR"], str(number)), "wb") as file:
                file.write(b"x" * (1 << 20))
        except OSError:
            time.sleep(0.01)
