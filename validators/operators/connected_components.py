"""Connected components of binary masks, eight neighbours, canonical labels."""

import torch
import torch.nn.functional as f

from kb.validators.operators.spec import Arguments, Axes, Buffer, Cost, ErrorModel, Operator, Workload


def reference(mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the labels, exactly.

    Args:
        mask: bool or uint8 [batch, height, width]; non-zero is foreground.

    Returns:
        One tensor int32 [batch, height, width]: 0 for background, else 1 + the smallest linear index
        (row * width + column, within the image) of the pixel's component. Diagonal neighbours are connected.
    """
    batch, height, width = mask.shape
    inside = mask != 0
    own = torch.arange(mask.numel(), device=mask.device)
    if mask.numel() == 0:
        return (own.reshape(mask.shape).to(torch.int32),)
    # Every pixel points at a pixel of its component with no larger index; roots take the smallest label seen around
    # their pixels, and chains are halved, until nothing changes: some ten rounds, where labels that spread a pixel at
    # a time take as many as the longest path has pixels.
    parent = own
    while True:
        labels = torch.where(inside, parent.reshape(mask.shape).to(torch.float64), torch.inf)
        around = -f.max_pool2d(-labels[:, None], 3, 1, 1)[:, 0]
        low = torch.where(inside, around, own.reshape(mask.shape).to(torch.float64)).to(torch.int64).reshape(-1)
        found = torch.minimum(parent.scatter_reduce(0, parent, low, "amin"), low)
        found = found[found]
        if torch.equal(found, parent):
            break
        parent = found
    within = parent.reshape(batch, -1) % (height * width) + 1
    return (torch.where(inside, within.reshape(mask.shape), 0).to(torch.int32),)


def cost(axes: Axes, dtype: str) -> Cost:
    """Four comparisons a pixel (half the neighbours); one byte read and four written a pixel."""
    pixels = axes["batch"] * axes["height"] * axes["width"]
    return Cost(flops=4 * pixels, essential_bytes=5 * pixels)


def _cast(mask: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return a bool mask as it is, or as uint8 with 255 for foreground, as image files have it."""
    return mask if dtype == "bool" else mask.to(torch.uint8) * 255


def _noise(axes: Axes, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(axes["batch"], axes["height"], axes["width"], generator=generator)


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Independent pixels at density 0.4, close to where eight-connected components begin to span the image."""
    return (_cast(_noise(axes, generator) < 0.4, dtype),)


def blobs(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Smooth regions with holes and specks, as a segmentation model leaves them."""
    noise = _noise(axes, generator)[:, None]
    smooth = f.avg_pool2d(noise, 9, 1, 4, count_include_pad=False)[:, 0]
    return (_cast((smooth > 0.5) ^ (noise[:, 0] < 0.01), dtype),)


def _broken(mask: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Turn images over at random and break one pixel of each: where it is decides which labels are left."""
    for image in mask:
        for axis in (0, 1):
            if torch.rand(1, generator=generator) < 0.5:
                image.copy_(image.flip(axis))
        image.view(-1)[int(torch.randint(0, image.numel(), (1,), generator=generator))] = False
    return mask


def snake(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """One path through every second row, joined at alternating ends: the longest way a label can have to go."""
    mask = torch.zeros(axes["batch"], axes["height"], axes["width"], dtype=torch.bool)
    mask[:, ::2] = True
    mask[:, 1::4, -1:] = True
    mask[:, 3::4, :1] = True
    return (_cast(_broken(mask, generator), dtype),)


def comb(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Teeth that meet only in the last row: every column is a component until the very end."""
    mask = torch.zeros(axes["batch"], axes["height"], axes["width"], dtype=torch.bool)
    mask[:, :, ::2] = True
    mask[:, -1:] = True
    return (_cast(_broken(mask, generator), dtype),)


def checkerboard(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """A board with random extra holes: with eight neighbours its pixels touch at corners only, with four never."""
    rows, cols = torch.arange(axes["height"])[:, None], torch.arange(axes["width"])[None, :]
    board = (rows + cols) % 2 == 0
    return (_cast(board & (_noise(axes, generator) > 0.2), dtype),)


def full(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """All foreground but for a hole or two: one component, whose label is far from most of its pixels."""
    return (_cast(_noise(axes, generator) > 2 / max(1, axes["height"] * axes["width"]), dtype),)


def specks(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Hardly any foreground: most components are one pixel, many images are empty or nearly so."""
    return (_cast(_noise(axes, generator) < 0.05, dtype),)


def _axes(batch: int, height: int, width: int) -> dict[str, int]:
    return {"batch": batch, "height": height, "width": width}


SPEC = Operator(
    name="connected_components",
    summary="labels[b, p] = 1 + smallest index of p's 8-connected component, 0 outside the mask",
    signature="connected_components(mask)",
    axes=("batch", "height", "width"),
    inputs=(Buffer("mask", ("batch", "height", "width"), doc="non-zero is foreground"),),
    outputs=(Buffer("labels", ("batch", "height", "width"), dtype="int32", doc="canonical: no run-to-run freedom"),),
    dtypes=("bool", "uint8"),
    reference=reference,
    condition=None,
    error=ErrorModel(accumulate="float32", c_acc=0, c_out=0),
    cost=cost,
    laws={
        "normal": normal,
        "blobs": blobs,
        "snake": snake,
        "comb": comb,
        "checkerboard": checkerboard,
        "full": full,
        "specks": specks,
    },
    workloads=(
        Workload(_axes(1, 1, 1), "bool"),
        Workload(_axes(0, 5, 5), "uint8", note="empty batch"),
        Workload(_axes(3, 1, 19), "uint8", note="one row"),
        Workload(_axes(2, 23, 1), "bool", note="one column"),
        Workload(_axes(2, 17, 29), "bool"),
        Workload(_axes(1, 16, 16), "uint8", "snake"),
        Workload(_axes(2, 9, 13), "bool", "comb"),
        Workload(_axes(1, 24, 37), "uint8", "blobs"),
        Workload(_axes(2, 17, 15), "bool", "checkerboard"),
        Workload(_axes(1, 15, 33), "uint8", "full"),
        Workload(_axes(3, 9, 17), "bool", "specks"),
        Workload(_axes(16, 288, 288), "bool", "blobs", use="target", note="SAM 3.1 hole filling, 16 objects"),
        Workload(_axes(1, 1080, 1920), "bool", "blobs", use="target", note="SAM 3.1 at video size"),
        Workload(_axes(16, 288, 288), "bool", "normal", use="target", note="worst case near percolation"),
    ),
    exact=True,
    source="connected-component labelling, 8-connectivity; canonical labels fixed here",
    baselines=("pool_and_jump",),
    rivals=("cc_torch.connected_components_labeling", "cv2.connectedComponents (CPU)"),
)
