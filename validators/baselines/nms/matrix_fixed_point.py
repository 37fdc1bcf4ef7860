"""torch.where on the matrix of overlaps until nothing changes."""

from fractions import Fraction

import torch

CAPTURE = False


def run(boxes: torch.Tensor, threshold: float = 0.1) -> torch.Tensor:
    """Return which boxes [num_boxes, 4], sorted by falling score, survive."""
    part = Fraction(str(threshold))
    wide = boxes.double()
    low, high = torch.maximum(wide[:, None, :2], wide[:, :2]), torch.minimum(wide[:, None, 2:], wide[:, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    areas = (wide[:, 2:] - wide[:, :2]).prod(-1)
    smaller = torch.minimum(areas[:, None], areas)
    over = (shared * part.denominator > smaller * part.numerator).triu(1)
    keep = torch.ones(len(boxes), dtype=torch.bool, device=boxes.device)
    while True:  # a box goes if a box before it that stays is over it
        again = ~(over & keep[:, None]).any(0)
        if torch.equal(again, keep):
            return keep
        keep = again
