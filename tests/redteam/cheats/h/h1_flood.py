"""Flood the channel with messages that nobody asked for.

row: H1
operator: rmsnorm
reason: forged_protocol
"""

# mypy: ignore-errors

import json
import os
import struct
import threading

import torch


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def shout(message: object) -> None:
    data = json.dumps(message).encode()
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, struct.pack("!I", len(data)) + data)
        except OSError:
            continue


def flood() -> None:
    while True:
        shout({"outputs": []})


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    threading.Thread(target=flood, daemon=True).start()
    return right(x, weight, eps)
