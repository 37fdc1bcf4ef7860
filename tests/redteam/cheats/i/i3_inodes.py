"""Fill the disk with empty files and deep folders.

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
    os.chdir(os.environ["TMPDIR"])
    for number in itertools.count():
        try:
            open(str(number), "wb").close()
            os.mkdir("deeper")
            os.chdir("deeper")
        except OSError:
            time.sleep(0.01)
