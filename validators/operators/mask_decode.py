"""Mask decoding: every query embedding times every pixel embedding, one mask a query."""

import torch

from kb.validators.operators.draws import mixed, signs
from kb.validators.operators.spec import DTYPES, Arguments, Axes, Buffer, Cost, ErrorModel, Operator, Workload, itemsize


def reference(queries: torch.Tensor, features: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the mask logits in float64.

    Args:
        queries: [batch, num_queries, channels].
        features: [batch, channels, num_pixels], pixels contiguous.

    Returns:
        One tensor [batch, num_queries, num_pixels].
    """
    return (torch.einsum("bqc,bcp->bqp", queries.to(torch.float64), features.to(torch.float64)),)


def condition(queries: torch.Tensor, features: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return S = sqrt(sum_c q^2 f^2), [batch, num_queries, num_pixels]."""
    q, f = queries.to(torch.float64).square(), features.to(torch.float64).square()
    return (torch.einsum("bqc,bcp->bqp", q, f).sqrt(),)


def cost(axes: Axes, dtype: str) -> Cost:
    """2 * batch * num_queries * channels * num_pixels operations; queries, features and masks moved once."""
    batch, queries, channels, pixels = (axes[a] for a in ("batch", "num_queries", "channels", "num_pixels"))
    elements = batch * (queries * channels + channels * pixels + queries * pixels)
    return Cost(flops=2 * batch * queries * channels * pixels, essential_bytes=elements * itemsize(dtype))


def _draw(axes: Axes, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    batch, queries, channels, pixels = (axes[a] for a in ("batch", "num_queries", "channels", "num_pixels"))
    scale = torch.exp2(torch.randint(-3, 4, (batch, queries, 1), generator=generator).to(torch.float32))
    q = torch.randn(batch, queries, channels, generator=generator) * scale / max(channels, 1) ** 0.5
    return q, torch.randn(batch, channels, pixels, generator=generator)


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Queries of mixed scale 2^-3 … 2^3, so that a mask cannot be taken from its neighbour, and unit features."""
    q, f = _draw(axes, generator)
    return q.to(DTYPES[dtype]), f.to(DTYPES[dtype])


def cancelling(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Features of a common offset 8 and queries that sum to about zero: logits far below their terms."""
    q, f = _draw(axes, generator)
    return (q - q.mean(-1, keepdim=True)).to(DTYPES[dtype]), (f + 8).to(DTYPES[dtype])


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Queries and channels of scale 2^-4 … 2^4 behind nominal ones, the last eighth 4 times the rest."""
    batch, queries, channels, pixels = (axes[a] for a in ("batch", "num_queries", "channels", "num_pixels"))
    q = mixed((batch, queries, channels), generator, spread=4, tail=2)
    f = mixed((batch, channels, pixels), generator, spread=4, tail=2) / max(channels, 1) ** 0.5
    return q.to(DTYPES[dtype]), f.to(DTYPES[dtype])


def integers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Small integers: every order of summation gives the same sum."""
    batch, queries, channels, pixels = (axes[a] for a in ("batch", "num_queries", "channels", "num_pixels"))
    q, f = signs((batch, queries, channels), generator), signs((batch, channels, pixels), generator)
    return q.to(DTYPES[dtype]), f.to(DTYPES[dtype])


def _axes(batch: int, num_queries: int, channels: int, num_pixels: int) -> dict[str, int]:
    return {"batch": batch, "num_queries": num_queries, "channels": channels, "num_pixels": num_pixels}


SPEC = Operator(
    name="mask_decode",
    summary="masks[b, q, p] = sum_c queries[b, q, c] * features[b, c, p]",
    signature="mask_decode(queries, features)",
    axes=("batch", "num_queries", "channels", "num_pixels"),
    inputs=(
        Buffer("queries", ("batch", "num_queries", "channels"), doc="channels contiguous"),
        Buffer("features", ("batch", "channels", "num_pixels"), doc="planar: pixels (height * width) contiguous"),
    ),
    outputs=(Buffer("masks", ("batch", "num_queries", "num_pixels"), doc="logits, pixels contiguous"),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=200, c_out=2),
    cost=cost,
    laws={"normal": normal, "cancelling": cancelling, "mixed_scale": mixed_scale, "integers": integers},
    exact_laws=("integers",),
    workloads=(
        Workload(_axes(1, 1, 1, 1), "float32"),
        Workload(_axes(0, 3, 32, 64), "bfloat16", note="empty batch"),
        Workload(_axes(1, 0, 32, 64), "float16", note="no queries"),
        Workload(_axes(2, 7, 32, 131), "bfloat16"),
        Workload(_axes(1, 48, 32, 529), "float16"),
        Workload(_axes(1, 37, 67, 257), "float32", "cancelling"),
        Workload(_axes(1, 200, 256, 304), "bfloat16"),
        Workload(_axes(1, 301, 48, 72), "bfloat16", "cancelling"),
        Workload(_axes(2, 15, 33, 65), "float32", "mixed_scale"),
        Workload(_axes(1, 17, 31, 129), "bfloat16", "mixed_scale"),
        Workload(_axes(2, 17, 33, 127), "float32", "integers"),
        Workload(_axes(1, 31, 64, 130), "bfloat16", "integers"),
        Workload(_axes(1, 3, 129, 63), "float16", "integers"),
        Workload(_axes(1, 200, 256, 82944), "bfloat16", use="target", note="SAM 3.1 detector, 200 queries at 288^2"),
        Workload(_axes(1, 48, 32, 82944), "bfloat16", use="target", note="SAM 3.1 tracker bucket, 16 objects x 3"),
        Workload(_axes(8, 48, 32, 82944), "bfloat16", use="target", note="SAM 3.1 tracker, 8 buckets"),
    ),
    source="Kirillov et al., Segment Anything, 2023, mask decoder; Carion et al., SAM 3, 2025, mask head",
    baselines=("bmm", "bmm_compiled"),
)
