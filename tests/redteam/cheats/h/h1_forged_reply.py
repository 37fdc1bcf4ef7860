"""Send a reply of its own over every descriptor that is open.

row: H1
operator: rmsnorm
reason: forged_protocol
"""

# mypy: ignore-errors

import json
import os
import struct

import torch


def shout(message: object) -> None:
    data = json.dumps(message).encode()
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, struct.pack("!I", len(data)) + data)
        except OSError:
            continue


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    place = {"plain": True, "type": "Tensor", "dtype": "float32", "shape": list(x.shape), "device": "cpu"}
    shout({"outputs": [{**place, "offset": 0, "size_bytes": x.numel() * 4}]})
    return torch.zeros_like(x)
