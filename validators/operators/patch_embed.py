"""Patch embedding: a convolution whose stride equals its kernel, written as one product a patch."""

import torch

from kb.validators.operators.draws import mixed, signs
from kb.validators.operators.spec import DTYPES, Arguments, Axes, Buffer, Cost, ErrorModel, Operator, Workload, itemsize


def _patches(images: torch.Tensor, patch_size: int) -> torch.Tensor:
    """Return the patches in float64, [batch, num_patches, in_channels, patch_size, patch_size], row by row."""
    rows = images.to(torch.float64).unfold(2, patch_size, patch_size).unfold(3, patch_size, patch_size)
    return rows.permute(0, 2, 3, 1, 4, 5).flatten(1, 2)


def reference(images: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the tokens in float64.

    Args:
        images: [batch, in_channels, patches_h * patch_size, patches_w * patch_size].
        weight: [embed_dim, in_channels, patch_size, patch_size].

    Returns:
        One tensor [batch, patches_h * patches_w, embed_dim]; token p is patch (p // patches_w, p % patches_w).
    """
    return (torch.einsum("bpcij,ocij->bpo", _patches(images, weight.shape[-1]), weight.to(torch.float64)),)


def condition(images: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return S = sqrt(sum of squared products), [batch, num_patches, embed_dim]."""
    squares = _patches(images, weight.shape[-1]).square()
    return (torch.einsum("bpcij,ocij->bpo", squares, weight.to(torch.float64).square()).sqrt(),)


def cost(axes: Axes, dtype: str) -> Cost:
    """2 * tokens * K * embed_dim operations, K = in_channels * patch_size^2; image, weight and tokens moved once."""
    tokens = axes["batch"] * axes["patches_h"] * axes["patches_w"]
    depth, width = axes["in_channels"] * axes["patch_size"] ** 2, axes["embed_dim"]
    elements = tokens * depth + depth * width + tokens * width
    return Cost(flops=2 * tokens * depth * width, essential_bytes=elements * itemsize(dtype))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Normalised pixels with a contrast of 2^-2 … 2^2 an image row, and weights of unit gain."""
    side, channels = axes["patch_size"], axes["in_channels"]
    height, width = axes["patches_h"] * side, axes["patches_w"] * side
    contrast = torch.exp2(torch.randint(-2, 3, (axes["batch"], 1, height, 1), generator=generator).to(torch.float32))
    images = torch.randn(axes["batch"], channels, height, width, generator=generator) * contrast
    weight = torch.randn(axes["embed_dim"], channels, side, side, generator=generator) / (channels * side * side) ** 0.5
    return images.to(DTYPES[dtype]), weight.to(DTYPES[dtype])


def _shapes(axes: Axes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of images and weight."""
    side, channels = axes["patch_size"], axes["in_channels"]
    image = (axes["batch"], channels, axes["patches_h"] * side, axes["patches_w"] * side)
    return image, (axes["embed_dim"], channels, side, side)


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Image rows of scale 2^-6 … 2^6 behind a nominal one, the right margin 16 times the rest."""
    image, taps = _shapes(axes)
    images = mixed(image, generator, spread=6)
    return images.to(DTYPES[dtype]), (torch.randn(taps, generator=generator) / 8).to(DTYPES[dtype])


def last_pixels(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Black but for the last row and column of every patch and some whole patches: what a padded tile would drop."""
    image, taps = _shapes(axes)
    side = axes["patch_size"]
    down, across = torch.arange(image[2]) % side == side - 1, torch.arange(image[3]) % side == side - 1
    images = torch.randn(image, generator=generator) * (down[:, None] | across[None, :])
    return images.to(DTYPES[dtype]), torch.randn(taps, generator=generator).to(DTYPES[dtype])


def bright(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Pixels of 0 … 255, not normalised, and weights of both signs that sum to about nothing: large terms cancel."""
    image, taps = _shapes(axes)
    weight = torch.randn(taps, generator=generator)
    weight = (weight - weight.mean((1, 2, 3), keepdim=True)) / 8
    images = torch.randint(0, 256, image, generator=generator)
    return images.to(DTYPES[dtype]), weight.to(DTYPES[dtype])


def integers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Small integers: every order of summation gives the same sum."""
    images, weight = (signs(shape, generator).to(DTYPES[dtype]) for shape in _shapes(axes))
    return images, weight


def _axes(batch: int, grid: tuple[int, int], patch_size: int, in_channels: int, embed_dim: int) -> dict[str, int]:
    names = ("batch", "patches_h", "patches_w", "patch_size", "in_channels", "embed_dim")
    return dict(zip(names, (batch, *grid, patch_size, in_channels, embed_dim), strict=True))


SPEC = Operator(
    name="patch_embed",
    summary="tokens[b, p, o] = sum_cij images[b, c, ph * s + i, pw * s + j] * weight[o, c, i, j]",
    signature="patch_embed(images, weight)",
    axes=("batch", "patches_h", "patches_w", "patch_size", "in_channels", "embed_dim"),
    inputs=(
        Buffer(
            "images",
            ("batch", "in_channels", "patches_h*patch_size", "patches_w*patch_size"),
            doc="planar (NCHW); patches do not overlap and cover the image",
        ),
        Buffer("weight", ("embed_dim", "in_channels", "patch_size", "patch_size"), static=True, doc="no bias"),
    ),
    outputs=(Buffer("tokens", ("batch", "patches_h*patches_w", "embed_dim"), doc="channels last, patches row by row"),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=200, c_out=2),
    cost=cost,
    laws={
        "normal": normal,
        "mixed_scale": mixed_scale,
        "last_pixels": last_pixels,
        "bright": bright,
        "integers": integers,
    },
    exact_laws=("integers",),
    workloads=(
        Workload(_axes(1, (1, 1), 1, 1, 1), "float32"),
        Workload(_axes(0, (2, 2), 14, 3, 32), "bfloat16", note="empty batch"),
        Workload(_axes(2, (3, 5), 7, 3, 19), "float32", note="odd patch: no two pixels may be paired"),
        Workload(_axes(1, (5, 7), 14, 3, 40), "bfloat16"),
        Workload(_axes(2, (9, 8), 14, 3, 136), "float16"),
        Workload(_axes(1, (3, 3), 16, 3, 64), "bfloat16"),
        Workload(_axes(1, (2, 3), 4, 5, 33), "float32"),
        Workload(_axes(2, (2, 3), 7, 3, 17), "float32", "mixed_scale"),
        Workload(_axes(1, (3, 2), 14, 3, 33), "bfloat16", "mixed_scale"),
        Workload(_axes(1, (3, 4), 14, 3, 15), "float16", "last_pixels"),
        Workload(_axes(1, (2, 2), 5, 1, 31), "float32", "bright"),
        Workload(_axes(2, (2, 3), 14, 3, 31), "float32", "integers"),
        Workload(_axes(1, (3, 5), 7, 3, 65), "bfloat16", "integers"),
        Workload(_axes(1, (72, 72), 14, 3, 1024), "bfloat16", use="target", note="SAM 3.1, 1008 x 1008"),
        Workload(_axes(8, (72, 72), 14, 3, 1024), "bfloat16", use="target", note="SAM 3.1, 8 frames"),
    ),
    source="Dosovitskiy et al., An Image is Worth 16x16 Words, 2020; torch.nn.Conv2d with stride = kernel",
    baselines=("conv2d", "patches_matmul", "patches_matmul_compiled"),
)
