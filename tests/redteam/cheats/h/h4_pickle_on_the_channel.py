"""Send a pickle where a message is expected.

row: H4
operator: rmsnorm
reason: forged_protocol
"""

# mypy: ignore-errors

import os
import pickle
import struct

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    data = pickle.dumps(print)
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, struct.pack("!I", len(data)) + data)
        except OSError:
            continue
    return torch.zeros_like(x)
