"""Expert routing: softmax in float32, the largest experts, weights that add up to one."""

from typing import cast

import torch

from kb.validators.operators.spec import (
    DTYPES,
    Arguments,
    Axes,
    Buffer,
    Cost,
    ErrorModel,
    Operator,
    Scalar,
    Workload,
    itemsize,
)


def reference(logits: torch.Tensor, top_k: int, renormalize: int = 1) -> tuple[torch.Tensor, ...]:
    """Return weights (float64) and expert ids (int32), both [num_tokens, top_k], best first, ties by lower id."""
    order = torch.sort(logits.double(), dim=-1, descending=True, stable=True).indices[:, :top_k]
    weights = torch.softmax(logits.double(), -1).gather(-1, order)
    if renormalize:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights, order.to(torch.int32)


def cost(axes: Axes, dtype: str) -> Cost:
    """4 operations a logit (compare, subtract, exp, add); logits once, a float32 and an int32 a choice."""
    logits, chosen = axes["num_tokens"] * axes["num_experts"], axes["num_tokens"] * axes["top_k"]
    return Cost(flops=4 * logits, essential_bytes=logits * itemsize(dtype) + 8 * chosen)


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """No two logits of a row are equal: a shuffled grid of 1/32, exact in every dtype, times 1/2, 1 or 2."""
    tokens, experts = axes["num_tokens"], axes["num_experts"]
    rank = torch.rand(tokens, experts, generator=generator).argsort(-1) - experts // 2
    size = torch.exp2(torch.randint(-1, 2, (tokens, 1), generator=generator).float())
    return (rank / 32 * size).to(DTYPES[dtype]), axes["top_k"], 1


def ties(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Logits in {-1, -0, 0, 1/2, 1}: most choices are between equals, and -0 equals 0. Not renormalised."""
    values = torch.tensor([-1.0, -0.0, 0.0, 0.5, 1.0])
    pick = torch.randint(5, (axes["num_tokens"], axes["num_experts"]), generator=generator)
    return values[pick].to(DTYPES[dtype]), axes["top_k"], 0


def strided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Like ``normal``, but the rows are part of a wider buffer whose other columns are larger."""
    logits, top_k, flag = cast(tuple[torch.Tensor, int, int], normal(axes, dtype, generator))
    return torch.cat([logits, torch.full_like(logits, 99.0)], 1)[:, : logits.shape[1]], top_k, flag


def large(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Logits of deviation 8 around an offset of up to 200 a row: exp without the maximum overflows."""
    rows = axes["num_tokens"]
    logits = 8 * torch.randn(rows, axes["num_experts"], generator=generator)
    return (logits + 100 * torch.randn(rows, 1, generator=generator)).to(DTYPES[dtype]), axes["top_k"], 1


def ordered(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rising, falling and constant rows: the winners are the last experts, the first, or the first by the tie rule."""
    rows = axes["num_tokens"]
    logits = torch.randn(rows, axes["num_experts"], generator=generator).sort(-1).values
    kind = torch.randint(0, 3, (rows, 1), generator=generator)
    logits = torch.where(kind == 1, -logits, torch.where(kind == 2, logits[:, :1], logits))
    return logits.to(DTYPES[dtype]), axes["top_k"], int(torch.randint(0, 2, (1,), generator=generator))


AXES = ("num_tokens", "num_experts", "top_k")


def _case(
    sizes: tuple[int, int, int], dtype: str, *, law: str = "normal", use: str = "awkward", note: str = ""
) -> Workload:
    return Workload(dict(zip(AXES, sizes, strict=True)), dtype, law=law, use=use, note=note)


SPEC = Operator(
    name="topk_router",
    summary="weights, ids = top_k(softmax(logits)), largest first, equal logits by lower id, renormalised",
    signature="topk_router(logits, top_k, renormalize=1)",
    axes=AXES,
    inputs=(
        Buffer("logits", ("num_tokens", "num_experts"), doc="finite; ordered as given, not after rounding a softmax"),
        Scalar("top_k", None, "experts a token"),
        Scalar("renormalize", 1, "1: divide by the sum of the chosen; 0: plain softmax values"),
    ),
    outputs=(
        Buffer("weights", ("num_tokens", "top_k"), "float32"),
        Buffer("ids", ("num_tokens", "top_k"), "int32", "exact"),
    ),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=None,
    # exp(x - max) has a relative error of about u (1 + |x - max|), at most 17 u for the laws here.
    error=ErrorModel(accumulate="float32", c_acc=64, c_out=1),
    cost=cost,
    laws={"normal": normal, "ties": ties, "strided": strided, "large": large, "ordered": ordered},
    workloads=(
        _case((1, 1, 1), "float32"),
        _case((0, 256, 8), "bfloat16"),
        _case((7, 256, 8), "bfloat16"),
        _case((5, 60, 4), "float32", law="ties"),
        _case((9, 256, 8), "bfloat16", law="ties"),
        _case((3, 129, 6), "float16", law="strided"),
        _case((2, 8, 8), "float32", law="strided", note="every expert is chosen"),
        _case((9, 129, 5), "float32", law="large"),
        _case((7, 256, 8), "bfloat16", law="large"),
        _case((6, 33, 4), "float32", law="ordered"),
        _case((9, 127, 8), "bfloat16", law="ordered"),
        _case((1, 256, 8), "bfloat16", use="target", note="Qwen3.6 decode"),
        _case((64, 256, 8), "bfloat16", use="target", note="Qwen3.6 decode"),
        _case((4096, 256, 8), "bfloat16", use="target", note="Qwen3.6 prefill"),
    ),
    source="transformers qwen3_5_moe (router): softmax in float32, top-k, renormalise",
    baselines=("softmax_sort_compiled", "softmax_sort"),
    rivals=("vllm topk_softmax",),
)
