"""Greedy suppression of boxes by intersection over the smaller area."""

from fractions import Fraction

import numpy as np
import torch

from kb.validators.operators.spec import Arguments, Axes, Buffer, Cost, ErrorModel, Operator, Scalar, Workload


def _decimal(threshold: float) -> Fraction:
    """Return the decimal that a threshold was written as, so that 0.1 is one tenth and ties are decided exactly."""
    return Fraction(str(threshold))


def reference(boxes: torch.Tensor, threshold: float = 0.1) -> tuple[torch.Tensor, ...]:
    """Return which boxes survive, exactly.

    Args:
        boxes: float32 [num_boxes, 4], left, top, right, bottom, in order of falling score.
        threshold: A box goes if its intersection with an earlier survivor exceeds threshold * the smaller area
            (strictly; a tie keeps the box, and so does an area of zero).

    Returns:
        One tensor bool [num_boxes].
    """
    wide = boxes.to(torch.float64).numpy()
    part = _decimal(threshold)
    keep = np.ones(len(wide), dtype=bool)
    areas = (wide[:, 2] - wide[:, 0]) * (wide[:, 3] - wide[:, 1])
    for index in range(len(wide)):
        earlier = np.flatnonzero(keep[:index])
        low = np.maximum(wide[earlier, :2], wide[index, :2])
        high = np.minimum(wide[earlier, 2:], wide[index, 2:])
        shared = np.clip(high - low, 0, None).prod(axis=1)
        # Areas of integer boxes are integers below 2^53: multiplied out, the comparison has no rounding at all.
        smaller = np.minimum(areas[earlier], areas[index])
        keep[index] = not bool((shared * part.denominator > smaller * part.numerator).any())
    return (torch.from_numpy(keep),)


def cost(axes: Axes, dtype: str) -> Cost:
    """Twelve operations a pair of boxes; boxes read once, one byte a box written. Pairs are num_boxes^2 / 2."""
    count = axes["num_boxes"]
    return Cost(flops=6 * count * max(count - 1, 0), essential_bytes=17 * count)


def _boxes(corners: torch.Tensor, sides: torch.Tensor) -> torch.Tensor:
    return torch.cat([corners, corners + sides], dim=1).to(torch.float32)


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Integer boxes in clusters on 1008 x 1008 pixels: areas stay exact in float32, ties occur, order matters."""
    count = axes["num_boxes"]
    centres = torch.randint(0, 900, (max(count // 6, 1), 2), generator=generator)
    chosen = centres[torch.randint(0, len(centres), (count,), generator=generator)]
    corners = chosen + torch.randint(-30, 31, (count, 2), generator=generator)
    return _boxes(corners, torch.randint(1, 90, (count, 2), generator=generator)), 0.1


def chain(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Boxes that each overlap only their neighbour, so that survival alternates through the whole list."""
    count = axes["num_boxes"]
    step = torch.arange(count)[:, None] * torch.tensor([[7, 0]]) + torch.randint(0, 50, (1, 2), generator=generator)
    boxes = _boxes(step, torch.full((count, 2), 10))
    # One link is missing, anywhere: from there on the others survive.
    if count:
        boxes[int(torch.randint(0, count, (1,), generator=generator)), 1::2] += 500
    return boxes, 0.1


def degenerate(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """A grid of equal boxes with exact duplicates and boxes of no area; threshold one half."""
    count = axes["num_boxes"]
    corners = 10 * torch.randint(0, 5, (count, 2), generator=generator)
    sides = torch.where(torch.rand(count, 1, generator=generator) < 0.2, 0, 20).expand(count, 2)
    return _boxes(corners, sides), 0.5


def crowded(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Boxes of two sizes around few centres: nearly all go, and the last survivor comes late."""
    count = axes["num_boxes"]
    corners = torch.randint(0, 40, (count, 2), generator=generator)
    sides = torch.where(torch.rand(count, 1, generator=generator) < 0.5, 64, 48).expand(count, 2)
    boxes = _boxes(corners, sides)
    boxes[-1:] += 500
    return boxes, 0.7


def nested(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Boxes inside boxes, the small ones first or last: intersection over the smaller area is 1, over the union not."""
    count = axes["num_boxes"]
    size = torch.randint(1, 30, (count, 1), generator=generator).sort(0).values
    if torch.rand(1, generator=generator) < 0.5:
        size = size.flip(0)
    home = 200 * torch.randint(0, 4, (count, 2), generator=generator)
    return _boxes(home + 60 - 2 * size, 4 * size.expand(count, 2)), 0.3


def apart(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Boxes that touch at their edges at most: all stay, whatever the threshold."""
    count = axes["num_boxes"]
    place = torch.randperm(max(count, 1), generator=generator)[:count]
    side = int(max(count, 1) ** 0.5) + 1
    size = int(torch.randint(2, 20, (1,), generator=generator))
    corners = torch.stack([place % side, place // side], dim=1) * size
    return _boxes(corners, torch.full((count, 2), size)), 0.1


def _axes(num_boxes: int) -> dict[str, int]:
    return {"num_boxes": num_boxes}


SPEC = Operator(
    name="nms",
    summary="keep[j] = no kept i < j with intersection(i, j) > threshold * min(area(i), area(j))",
    signature="nms(boxes, threshold=0.1)",
    axes=("num_boxes",),
    inputs=(
        Buffer("boxes", ("num_boxes", "4"), dtype="float32", doc="left, top, right, bottom; sorted by falling score"),
        Scalar("threshold", 0.1, "share of the smaller area; strict"),
    ),
    outputs=(Buffer("keep", ("num_boxes",), dtype="bool", doc="a mask: no size depends on data"),),
    dtypes=("float32",),
    reference=reference,
    condition=None,
    error=ErrorModel(accumulate="float32", c_acc=0, c_out=0),
    cost=cost,
    laws={
        "normal": normal,
        "chain": chain,
        "degenerate": degenerate,
        "crowded": crowded,
        "nested": nested,
        "apart": apart,
    },
    workloads=(
        Workload(_axes(0), "float32", note="no boxes"),
        Workload(_axes(1), "float32"),
        Workload(_axes(31), "float32"),
        Workload(_axes(33), "float32", "degenerate"),
        Workload(_axes(100), "float32", "chain"),
        Workload(_axes(137), "float32", "degenerate"),
        Workload(_axes(200), "float32"),
        Workload(_axes(300), "float32"),
        Workload(_axes(65), "float32", "crowded"),
        Workload(_axes(129), "float32", "nested"),
        Workload(_axes(63), "float32", "nested"),
        Workload(_axes(127), "float32", "apart"),
        Workload(_axes(200), "float32", use="target", note="SAM 3.1 detector queries"),
        Workload(_axes(1024), "float32", use="target", note="SAM automatic masks, 32 x 32 points"),
        Workload(_axes(4096), "float32", use="target", note="dense proposals"),
    ),
    exact=True,
    source="greedy non-maximum suppression with intersection over minimum, as in SAM 3.1's detector",
    baselines=("matrix_fixed_point",),
    rivals=("torchvision.ops.nms, which divides by the union",),
)
