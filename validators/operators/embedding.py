"""Rows of a table by token id, zeros for padding: the first operator of a decoder."""

from math import gcd
from typing import cast

import torch

from kb.validators.operators.draws import weights
from kb.validators.operators.spec import DTYPES, Arguments, Axes, Buffer, Cost, ErrorModel, Operator, Workload, itemsize


def reference(token_ids: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return weight[token_ids], zeros where the id is -1, in float64 (a pure copy, so exact)."""
    y = torch.zeros(token_ids.shape[0], weight.shape[1], dtype=torch.float64, device=weight.device)
    present = token_ids >= 0
    y[present] = weight[token_ids[present]].to(torch.float64)
    return (y,)


def cost(axes: Axes, dtype: str) -> Cost:
    """No operations. y, min(T, V) rows of the table, which the law ``normal`` names, and 8 bytes an id."""
    tokens = axes["num_tokens"]
    moved = (tokens + min(tokens, axes["vocab_size"])) * axes["hidden_size"] * itemsize(dtype)
    return Cost(flops=0, essential_bytes=moved + 8 * tokens)


def _table(axes: Axes, dtype: str, generator: torch.Generator) -> torch.Tensor:
    """Draw rows of scale 2^-4 … 2^4, [vocab_size, hidden_size], so that a wrong row shows."""
    vocab, hidden = axes["vocab_size"], axes["hidden_size"]
    parts = gcd(vocab, 64)
    table = weights((parts, vocab // parts, hidden), 1.0, dtype, generator).reshape(vocab, hidden)
    scale = torch.exp2(torch.randint(-4, 5, (vocab, 1), generator=generator).to(torch.float32))
    return table.mul_(scale.to(table.dtype))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Ids in any order, each at most once where the table has as many rows, else every row at least once."""
    tokens, vocab = axes["num_tokens"], axes["vocab_size"]
    order = torch.randperm(vocab, generator=generator)
    ids = order[torch.arange(tokens) % vocab]
    return ids[torch.randperm(tokens, generator=generator)], _table(axes, dtype, generator)


def skewed(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Ids by Zipf's law, as text has them: a few rows many times, most never."""
    load = torch.arange(1, axes["vocab_size"] + 1, dtype=torch.float64).reciprocal()
    load = load[torch.randperm(axes["vocab_size"], generator=generator)]
    ids = torch.multinomial(load, max(1, axes["num_tokens"]), replacement=True, generator=generator)
    return ids[: axes["num_tokens"]], _table(axes, dtype, generator)


def padding(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Runs of -1 of random length, the last token among them: a padded batch, or a shard that lacks these rows."""
    ids, table = cast(tuple[torch.Tensor, ...], normal(axes, dtype, generator))
    lengths = torch.randint(1, 6, (max(1, axes["num_tokens"]),), generator=generator)
    padded = (torch.arange(len(lengths)) % 2 == 0).repeat_interleave(lengths)[: axes["num_tokens"]].flip(0)
    ids[padded] = -1
    return ids, table


def out_of_order(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Ids falling from the last row of the table to the first, both named, -1 scattered between."""
    tokens, vocab = axes["num_tokens"], axes["vocab_size"]
    ids = torch.randint(0, vocab, (tokens,), generator=generator).sort(descending=True).values
    ids[1:-1][torch.rand(max(0, tokens - 2), generator=generator) < 0.2] = -1
    ids[:1], ids[1:][-1:] = vocab - 1, 0
    return ids, _table(axes, dtype, generator)


def special(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """NaN, infinities, the largest and subnormal numbers in the table, every fifth id -1: copies, and zeros beside."""
    ids, table = cast(tuple[torch.Tensor, ...], normal(axes, dtype, generator))
    info = torch.finfo(DTYPES[dtype])
    values = torch.tensor([torch.nan, torch.inf, -torch.inf, info.max, info.smallest_normal / 4], dtype=torch.float64)
    hit = torch.rand(table.shape, generator=generator) < 0.2
    pick = values.to(table.dtype)[torch.randint(0, len(values), table.shape, generator=generator)]
    ids[4::5] = -1
    return ids, torch.where(hit, pick, table)


AXES = ("num_tokens", "hidden_size", "vocab_size")


def _case(
    sizes: tuple[int, int, int], dtype: str, *, law: str = "normal", use: str = "awkward", note: str = ""
) -> Workload:
    return Workload(dict(zip(AXES, sizes, strict=True)), dtype, law=law, use=use, note=note)


SPEC = Operator(
    name="embedding",
    summary="y[t] = weight[token_ids[t]], zeros where token_ids[t] is -1",
    signature="embedding(token_ids, weight)",
    axes=AXES,
    inputs=(
        Buffer("token_ids", ("num_tokens",), "int64", "0 … vocab_size - 1; -1: padding, or a row of another shard"),
        Buffer("weight", ("vocab_size", "hidden_size"), static=True),
    ),
    outputs=(Buffer("y", ("num_tokens", "hidden_size"), doc="bit for bit the row of the table"),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=None,
    # A copy rounds nothing: no error is admitted (tiny only keeps 0/0 out of the comparison).
    error=ErrorModel(accumulate="float32", c_acc=0, c_out=0, tiny=1e-300),
    cost=cost,
    laws={
        "normal": normal,
        "skewed": skewed,
        "padding": padding,
        "out_of_order": out_of_order,
        "special": special,
    },
    workloads=(
        _case((1, 1, 3), "float32"),
        _case((0, 32, 5), "bfloat16", note="no token"),
        _case((37, 129, 50), "bfloat16", note="odd rows: none but the first is aligned"),
        _case((67, 40, 7), "float16", note="more tokens than rows"),
        _case((33, 1025, 300), "bfloat16", law="skewed"),
        _case((65, 48, 97), "float32", law="skewed"),
        _case((41, 72, 64), "bfloat16", law="padding"),
        _case((13, 33, 31), "float32", law="padding"),
        _case((29, 64, 127), "bfloat16", law="out_of_order"),
        _case((17, 31, 11), "float16", law="out_of_order"),
        _case((23, 40, 19), "bfloat16", law="special"),
        _case((11, 17, 13), "float32", law="special"),
        _case((1, 2048, 248320), "bfloat16", use="target", note="Qwen3.6 decode"),
        _case((32, 2048, 248320), "bfloat16", law="skewed", use="target", note="Qwen3.6, 32 sequences"),
        _case((1024, 2048, 248320), "bfloat16", use="target", note="Qwen3.6 prefill"),
        _case((4096, 2048, 248320), "bfloat16", use="target", note="Qwen3.6 prefill"),
        _case((32, 1024, 49408), "bfloat16", use="target", note="SAM 3.1 text encoder"),
        _case((2048, 8192, 128256), "bfloat16", use="target", note="Llama-3.1-70B prefill"),
    ),
    source="torch.nn.functional.embedding; -1 as in vLLM's VocabParallelEmbedding, which zeroes rows of other shards",
    baselines=("embedding_compiled", "embedding", "index_select"),
)
