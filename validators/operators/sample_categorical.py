"""Draw from each row by inverting its cumulative sum at a given uniform number.

The result is an index and compared exactly, so a law must not put u where rounding decides: u is drawn inside the
interval of a chosen token, at least a quarter of its probability away from both ends, and the token is one with enough
probability that a float32 sum lands on the right side (1e-6 in all laws). The reference sums in float64.
"""

from typing import cast

import torch

from kb.validators.operators.spec import Arguments, Axes, Buffer, Cost, ErrorModel, Operator, Workload


def reference(probs: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the first index whose cumulative probability exceeds u, int64; the last possible token if none does."""
    above = probs.double().cumsum(-1) > u.double()[:, None]
    last = probs.shape[1] - 1 - (probs > 0).int().flip(-1).argmax(-1)
    return (torch.where(above.any(-1), above.int().argmax(-1), last),)


def cost(axes: Axes, dtype: str) -> Cost:
    """One addition and one comparison a probability; probabilities and u once, an int64 a row."""
    elements = axes["num_rows"] * axes["vocab_size"]
    return Cost(flops=2 * elements, essential_bytes=4 * elements + 12 * axes["num_rows"])


def _choose(probs: torch.Tensor, generator: torch.Generator) -> Arguments:
    """Normalise to float32, choose a token likely enough, and a u in the middle half of its interval."""
    made = (probs / probs.sum(-1, keepdim=True)).float()
    wide = made.double()
    likely = torch.where(wide >= torch.clamp(wide.amax(-1, keepdim=True) / 2, max=1e-4), wide, 0.0)
    if made.shape[0]:
        pick = torch.multinomial(likely, 1, generator=generator)
        place = 0.25 + 0.5 * torch.rand(pick.shape, generator=generator, dtype=torch.float64)
        u = (wide.cumsum(-1) - wide).gather(1, pick) + place * wide.gather(1, pick)
        return made, u[:, 0].float()
    return made, torch.zeros(0)


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Dense rows: softmax of logits of standard deviation 2."""
    logits = 2 * torch.randn(axes["num_rows"], axes["vocab_size"], generator=generator, dtype=torch.float64)
    return _choose(torch.softmax(logits, -1), generator)


def sparse(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """As top-k and top-p leave them: at most 20 tokens a row are not zero; the first row has u = 0, an exact edge."""
    rows, vocab = axes["num_rows"], axes["vocab_size"]
    probs = torch.zeros(rows, vocab, dtype=torch.float64)
    tokens = torch.randint(vocab, (rows, min(20, vocab)), generator=generator)
    weight = torch.rand(tokens.shape, generator=generator, dtype=torch.float64) + 0.05
    made, u = cast(tuple[torch.Tensor, torch.Tensor], _choose(probs.scatter_(1, tokens, weight), generator))
    u[:1] = 0.0
    return made, u


def strided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Like ``normal``, but the rows are part of a wider buffer."""
    probs, u = cast(tuple[torch.Tensor, torch.Tensor], normal(axes, dtype, generator))
    return torch.cat([probs, torch.ones_like(probs[:, :8])], 1)[:, : probs.shape[1]], u


def one_hot(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """One token holds everything, anywhere; or two neighbours share it; all else is exactly zero."""
    rows, vocab = axes["num_rows"], axes["vocab_size"]
    probs = torch.zeros(rows, vocab, dtype=torch.float64)
    at = torch.randint(0, vocab, (rows, 1), generator=generator)
    probs.scatter_(1, at, 1.0)
    share = torch.where(torch.rand(rows, 1, generator=generator, dtype=torch.float64) < 0.5, 1.0, 0.0)
    return _choose(probs.scatter_(1, (at + 1) % vocab, share.double()), generator)


def uniform(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """All tokens are about as likely: the answer is anywhere, and a guess of the mode is wrong."""
    shape = (axes["num_rows"], axes["vocab_size"])
    return _choose(1 + 0.1 * torch.rand(shape, generator=generator, dtype=torch.float64), generator)


AXES = ("num_rows", "vocab_size")


def _case(sizes: tuple[int, int], *, law: str = "normal", use: str = "awkward", note: str = "") -> Workload:
    return Workload(dict(zip(AXES, sizes, strict=True)), "float32", law=law, use=use, note=note)


SPEC = Operator(
    name="sample_categorical",
    summary="token = first index with cumsum(probs) > u",
    signature="sample_categorical(probs, u)",
    axes=AXES,
    inputs=(
        Buffer("probs", ("num_rows", "vocab_size"), doc="not negative, adds up to about 1; row stride is free"),
        Buffer("u", ("num_rows",), "float32", "0 … 1, not within 1e-6 of an edge of the sum, except exactly 0"),
    ),
    outputs=(Buffer("token", ("num_rows",), "int64", "exact; a token of probability 0 is never returned"),),
    dtypes=("float32",),
    reference=reference,
    condition=None,
    error=ErrorModel(accumulate="float32", c_acc=1, c_out=1),
    cost=cost,
    laws={"normal": normal, "sparse": sparse, "strided": strided, "one_hot": one_hot, "uniform": uniform},
    workloads=(
        _case((1, 1)),
        _case((0, 100)),
        _case((5, 1000)),
        _case((7, 4099), law="sparse"),
        _case((3, 2053), law="strided"),
        _case((16, 17), law="sparse"),
        _case((2, 20000)),
        _case((9, 33), law="one_hot"),
        _case((7, 1025), law="one_hot"),
        _case((5, 127), law="uniform"),
        _case((13, 6007), law="uniform"),
        _case((1, 248320), use="target", note="Qwen3.6 sampling"),
        _case((64, 248320), law="sparse", use="target", note="Qwen3.6 sampling"),
    ),
    exact=True,
    source="inverse transform sampling with shared uniforms",
    baselines=("cumsum_searchsorted_compiled", "cumsum_searchsorted"),
    rivals=("flashinfer sampling_from_probs",),
)
