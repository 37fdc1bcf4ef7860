"""Keep the likeliest tokens of each row and renormalise.

Which tokens stay is a property of *values*, so that ties need no order: token i stays if fewer than top_k tokens of
the row have a strictly larger logit, and if the tokens with strictly larger logits hold less than top_p of the
probability of all tokens that pass the first test. Equal logits stay or go together, so more than top_k can stay.
"""

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
    Workload,
    itemsize,
)


def _above(values: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    """For one row: the sum of ``amounts`` over all strictly larger values, per element, float64."""
    ordered, order = torch.sort(values, descending=True)
    before = torch.cat([torch.zeros(1, dtype=torch.float64), amounts[order].cumsum(0)])
    return before[torch.searchsorted(-ordered, -values, side="left")]


def reference(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the renormalised probabilities in float64, zero outside the kept set; shapes as in ``SPEC``."""
    out = torch.zeros(logits.shape, dtype=torch.float64)
    for row, (k, p) in enumerate(zip(top_k.tolist(), top_p.tolist(), strict=True)):
        values = logits[row].double()
        kept = torch.ones(values.shape, dtype=torch.bool)
        if 0 < k < values.numel():
            kept = _above(values, torch.ones_like(values)) < k
        chance = torch.softmax(values.masked_fill(~kept, -torch.inf), 0)
        if p < 1:
            kept &= _above(values, chance) < p
        out[row] = torch.where(kept, chance, 0.0) / chance[kept].sum()
    return (out,)


def condition(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return S = y (1 + |x - max|): the relative error of exp(x - max) is that of its argument."""
    (y,) = reference(logits, top_k, top_p)
    wide = logits.double()
    return (y * (1 + torch.nan_to_num(wide.amax(-1, keepdim=True) - wide, posinf=0.0)),)


def cost(axes: Axes, dtype: str) -> Cost:
    """4 operations a logit; logits once, float32 probabilities once, two numbers a row."""
    elements = axes["num_rows"] * axes["vocab_size"]
    return Cost(flops=4 * elements, essential_bytes=elements * (itemsize(dtype) + 4) + 8 * axes["num_rows"])


def _clear_p(values: torch.Tensor, k: int, wanted: float) -> float:
    """Return a top_p near ``wanted`` in the middle of the widest step of the cumulative sum, away from its edges."""
    ordered = torch.unique(values.double()).flip(0)
    counts = (values.double()[None, :] == ordered[:, None]).sum(1) if ordered.numel() < 4096 else None
    if counts is None:
        ordered, counts = torch.unique(values.double(), return_counts=True)
        ordered, counts = ordered.flip(0), counts.flip(0)
    first = counts.cumsum(0) - counts < k
    mass = torch.exp(ordered - ordered[0]) * counts * first
    share = mass / mass.sum()
    middle = share.cumsum(0) - share / 2
    near = (middle - wanted).abs() < 0.08
    return float(middle[(share * near + 1e-9 * share).argmax()])


def _finish(logits: torch.Tensor, generator: torch.Generator, ks: list[int]) -> Arguments:
    rows = logits.shape[0]
    first = int(torch.randint(len(ks), (1,), generator=generator))
    top_k = torch.tensor([ks[(first + row) % len(ks)] for row in range(rows)], dtype=torch.int32)
    top_p = torch.ones(rows)
    for row in range(rows):
        if row % 4 != 3:  # Every fourth row has top_p off.
            wanted = 0.7 + 0.25 * float(torch.rand(1, generator=generator))
            k = int(top_k[row])
            top_p[row] = _clear_p(logits[row], k if k > 0 else logits.shape[1], wanted)
    return logits, top_k, top_p


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Peaked rows as a language model gives them: a broad body and a few tokens far above; top_k 20, 50, 1 or off."""
    rows, vocab = axes["num_rows"], axes["vocab_size"]
    logits = 2 * torch.randn(rows, vocab, generator=generator)
    tall = torch.randint(vocab, (rows, min(vocab, 12)), generator=generator)
    bonus = torch.empty(tall.shape).exponential_(0.5, generator=generator)
    logits.scatter_(1, tall, 4 * 2**0.5 + torch.log(torch.tensor(float(vocab))) + bonus)
    return _finish(logits.to(DTYPES[dtype]), generator, [20, 50, 1, 0])


def ties(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Logits on a grid of 1/2, and a tenth of them -inf: the boundary class is kept or dropped as a whole."""
    logits = (4 * torch.randn(axes["num_rows"], axes["vocab_size"], generator=generator)).round() / 2
    hidden = torch.rand(logits.shape, generator=generator) < 0.1
    hidden[:, :1] = False
    return _finish(logits.masked_fill(hidden, -torch.inf).to(DTYPES[dtype]), generator, [3, 17, 1000, 0])


def strided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Like ``normal``, but the rows are part of a padded buffer whose last columns are larger."""
    logits, top_k, top_p = cast(tuple[torch.Tensor, ...], normal(axes, dtype, generator))
    return torch.cat([logits, torch.full_like(logits[:, :8], 99.0)], 1)[:, : logits.shape[1]], top_k, top_p


def shifted(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As ``normal`` around an offset of up to 1000 a row: exp without the maximum overflows, or leaves nothing."""
    rows, vocab = axes["num_rows"], axes["vocab_size"]
    logits = 3 * torch.randn(rows, vocab, generator=generator)
    offset = 500 * torch.randn(rows, 1, generator=generator)
    return _finish((logits + offset).to(DTYPES[dtype]), generator, [20, 0, 5, 50])


def ordered(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rising, falling and constant rows: the kept tokens are the last, the first, or all because all are equal."""
    rows, vocab = axes["num_rows"], axes["vocab_size"]
    logits = (2 * torch.randn(rows, vocab, generator=generator)).sort(-1).values
    kind = torch.randint(0, 3, (rows, 1), generator=generator)
    logits = torch.where(kind == 1, -logits, torch.where(kind == 2, logits[:, :1], logits))
    return _finish(logits.to(DTYPES[dtype]), generator, [7, 20, 0, 40])


AXES = ("num_rows", "vocab_size")


def _case(sizes: tuple[int, int], dtype: str, *, law: str = "normal", use: str = "awkward", note: str = "") -> Workload:
    return Workload(dict(zip(AXES, sizes, strict=True)), dtype, law=law, use=use, note=note)


SPEC = Operator(
    name="top_k_top_p",
    summary="probs = softmax over the tokens within top_k and then top_p, zero elsewhere, ties kept together",
    signature="top_k_top_p(logits, top_k, top_p)",
    axes=AXES,
    inputs=(
        Buffer("logits", ("num_rows", "vocab_size"), doc="at least one finite a row, -inf allowed; row stride is free"),
        Buffer("top_k", ("num_rows",), "int32", "0 or at least vocab_size: off"),
        Buffer("top_p", ("num_rows",), "float32", "above 0; 1 or more: off. Never within 1e-6 of a step of the sum"),
    ),
    outputs=(Buffer("probs", ("num_rows", "vocab_size"), "float32"),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=32, c_out=1),
    cost=cost,
    laws={"normal": normal, "ties": ties, "strided": strided, "shifted": shifted, "ordered": ordered},
    workloads=(
        _case((1, 1), "float32"),
        _case((0, 100), "bfloat16"),
        _case((5, 1000), "float32"),
        _case((8, 613), "bfloat16", law="ties"),
        _case((4, 2053), "float16", law="strided"),
        _case((4, 40), "float32", law="ties"),
        _case((2, 5000), "bfloat16"),
        _case((5, 129), "float32", law="shifted"),
        _case((4, 509), "bfloat16", law="shifted"),
        _case((6, 257), "float32", law="ordered"),
        _case((4, 127), "float16", law="ordered"),
        _case((1, 248320), "bfloat16", use="target", note="Qwen3.6 sampling"),
        _case((64, 248320), "bfloat16", use="target", note="Qwen3.6 sampling"),
    ),
    source="vllm and flashinfer: top-k, then top-p on the renormalised rest; tie rule stated here",
    baselines=("sort_cumsum_compiled", "sort_cumsum"),
    rivals=("flashinfer top_k_top_p renorm",),
)
