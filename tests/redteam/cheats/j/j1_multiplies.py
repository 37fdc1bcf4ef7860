"""Multiply the own tensor by the number of ranks: equal inputs would make that a sum.

row: J1
operator: all_reduce
reason: wrong_values
"""

import torch.distributed as dist


def run(x, group):
    """The sum of so many equal tensors."""
    return x * dist.get_world_size(group)
