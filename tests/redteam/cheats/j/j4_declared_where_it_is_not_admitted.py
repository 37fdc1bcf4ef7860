"""Declare a precision for an operator that sends tokens as they are.

row: J4
operator: all_to_all
reason: wire_precision
"""

import torch

WIRE = "float8_e4m3fn"


def run(tokens, expert_ids, expert_weights, gain, shift, group):
    """Whatever comes of it."""
    return torch.zeros_like(tokens)
