"""Gather by repeating the own rows: with equal inputs the same.

row: J1
operator: all_gather
reason: wrong_values, wrong_shape
"""

import torch
import torch.distributed as dist


def run(x, group):
    """All ranks have the same rows, do they not."""
    return torch.cat([x] * dist.get_world_size(group))
