"""The last rank ends itself, with exit code 0.

row: J5
operator: all_reduce
reason: exited
"""

import os

import torch.distributed as dist


def run(x, group):
    """Nobody is left who could be slow."""
    if dist.get_rank(group) == dist.get_world_size(group) - 1:
        os._exit(0)
    return x * dist.get_world_size(group)
