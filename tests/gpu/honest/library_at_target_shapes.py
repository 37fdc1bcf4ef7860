"""The library's product at the shapes of the targets, where the arbiter judges it on the device.

operator: gemm
use: target
"""

import torch


def run(a, b):
    return torch.matmul(a, b)
