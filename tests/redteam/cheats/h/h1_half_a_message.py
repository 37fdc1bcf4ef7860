"""Announce a long message and never send it.

row: H1
operator: rmsnorm
reason: timed_out, forged_protocol
"""

# mypy: ignore-errors

import os
import struct
import time

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, struct.pack("!I", 1 << 19) + b"{")
        except OSError:
            continue
    time.sleep(3600)
    return x
