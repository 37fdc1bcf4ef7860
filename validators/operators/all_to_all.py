"""All-to-all of a mixture of experts: tokens go to the ranks of their experts, and the weighted answers come home.

Experts are as cheap as they can be, ``tanh(gain * row + shift)``, so that what is judged is the way there and back.
They are not linear, so no rank can do the work of another from a sum of rows, and each rank holds only its own.
"""

from typing import cast

import torch

from kb.validators.operators import ranks
from kb.validators.operators.spec import (
    DTYPES,
    UNIT_ROUNDOFF,
    Arguments,
    Axes,
    Buffer,
    Cost,
    ErrorModel,
    Operator,
    Wire,
    Workload,
    itemsize,
)

C_ACC = 64

Rank = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def _rows(one: Rank, gain: torch.Tensor, shift: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return, for each (token, choice) of a rank: weighted answers, weights, and how fast an answer moves."""
    tokens, ids, weights = one[0].to(torch.float64), one[1], one[2].to(torch.float64)
    used = (ids >= 0).to(torch.float64) * weights
    chosen = ids.clamp(min=0)
    inner = gain[chosen] * tokens[:, None, :] + shift[chosen]
    slack = (gain[chosen] * tokens[:, None, :]).abs() + shift[chosen].abs()
    return torch.tanh(inner) * used[..., None], used, slack * used.abs()[..., None]


def _experts(given: tuple[Arguments, ...]) -> tuple[list[Rank], torch.Tensor, torch.Tensor]:
    each = [cast(Rank, one) for one in given]
    return (
        each,
        torch.cat([one[3].to(torch.float64) for one in each]),
        torch.cat([one[4].to(torch.float64) for one in each]),
    )


def reference(*given: Arguments) -> tuple[torch.Tensor, ...]:
    """Return, for each rank, sum over a token's experts of weight * tanh(gain * token + shift), in float64.

    Args:
        given: Of each rank: tokens [its tokens, hidden_size], expert_ids and expert_weights [its tokens, top_k], gain
            and shift [experts a rank, hidden_size]. Rank r holds the r-th equal part of the experts; -1 is no choice.
    """
    each, gain, shift = _experts(given)
    return tuple(_rows(one, gain, shift)[0].sum(1) for one in each)


def condition(*given: Arguments) -> tuple[torch.Tensor, ...]:
    """Return S: what rounding before tanh can do, and the roundings of answers and partial sums on their way home."""
    each, gain, shift = _experts(given)
    roundoff = UNIT_ROUNDOFF[str(each[0][0].dtype).removeprefix("torch.")]
    made = []
    for one in each:
        rows, _, slack = _rows(one, gain, shift)
        # An answer may be rounded to the data's dtype, then a rank's partial sum of answers.
        moved = rows.abs().sum(1) * 2 * roundoff / (C_ACC * UNIT_ROUNDOFF["float32"])
        made.append(moved + (rows.square().sum(1).sqrt() + slack.sum(1)))
    return tuple(made)


def wire(*given: Arguments) -> Wire:
    """A token must reach every other rank that has an expert of its own, and an answer must come back.

    Answers may be added up on their way home, so one row back is enough for a token; a token may be passed on, so one
    copy out is enough.

    Args:
        given: As for ``reference``.
    """
    each, world = [cast(Rank, one) for one in given], len(given)
    row = each[0][0].shape[1] * each[0][0].itemsize
    experts = each[0][3].shape[0]
    # remote[r, q]: tokens of rank r with an expert on rank q; away[r]: tokens of r with an expert on any other rank.
    remote = torch.zeros(world, world, dtype=torch.int64)
    away = torch.zeros(world, dtype=torch.int64)
    for rank, one in enumerate(each):
        owner = torch.where(one[1] >= 0, one[1] // experts, -1)
        there = torch.stack([(owner == peer).any(1) for peer in range(world)])
        there[rank] = False
        remote[rank] = there.sum(1)
        away[rank] = there.any(0).sum()
    asked = remote.sum(0)
    sent = tuple(int(row * (away[r] + asked[r])) for r in range(world))
    return Wire(sent, sent, int(row * (remote.sum() + away.sum())))


def cost(axes: Axes, dtype: str) -> Cost:
    """Five operations an element and choice; tokens read and written once, ids, weights and experts read once."""
    tokens, hidden, top_k = axes["num_tokens"], axes["hidden_size"], axes["top_k"]
    traffic = (2 * tokens + 2 * axes["num_experts"]) * hidden * itemsize(dtype)
    return Cost(flops=5 * tokens * top_k * hidden, essential_bytes=traffic + 12 * tokens * top_k)


def _counts(axes: Axes, generator: torch.Generator, *, ragged: bool) -> list[int]:
    world, tokens = axes["world_size"], axes["num_tokens"]
    if not ragged:
        return [len(ranks.own_rows(tokens, rank, world)) for rank in range(world)]
    cuts = sorted(int(one) for one in torch.randint(0, tokens + 1, (world - 1,), generator=generator))
    return [after - before for before, after in zip([0, *cuts], [*cuts, tokens], strict=True)]


def _routes(axes: Axes, count: int, generator: torch.Generator, bias: torch.Tensor) -> torch.Tensor:
    """Draw distinct experts for each token, those of larger bias more often."""
    noise = torch.rand(count, axes["num_experts"], generator=generator)
    return (noise + bias).topk(axes["top_k"], dim=1).indices.to(torch.int64)


def _made(
    axes: Axes, dtype: str, generator: torch.Generator, *, bias: torch.Tensor, ragged: bool = False, unused: float = 0.0
) -> Arguments:
    world, hidden, kind = axes["world_size"], axes["hidden_size"], DTYPES[dtype]
    counts = _counts(axes, generator, ragged=ragged)
    tokens = ranks.draw("normal", [(count, hidden) for count in counts], dtype, generator)
    each = axes["num_experts"] // world
    made = []
    for count, rows in zip(counts, tokens, strict=True):
        ids = _routes(axes, count, generator, bias)
        if unused:
            ids[torch.rand(ids.shape, generator=generator) < unused] = -1
        weights = torch.rand(count, axes["top_k"], generator=generator) + 0.1
        gain = 0.5 + torch.rand(each, hidden, generator=generator)
        shift = 0.5 * torch.randn(each, hidden, generator=generator)
        made.append((rows, ids, weights, gain.to(kind), shift.to(kind)))
    return tuple(made)


def uniform(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Experts drawn evenly; as many tokens on every rank as can be."""
    return _made(axes, dtype, generator, bias=torch.zeros(axes["num_experts"]))


def skewed(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Few experts get most tokens, and tokens lie unevenly over the ranks, none on some."""
    order = torch.randperm(axes["num_experts"], generator=generator).to(torch.float32)
    return _made(axes, dtype, generator, bias=2 / (1 + order), ragged=True)


def one_rank(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """All experts that are chosen live on one rank."""
    world, experts = axes["world_size"], axes["num_experts"]
    owner = int(torch.randint(world, (1,), generator=generator))
    bias = torch.zeros(experts)
    bias[owner * (experts // world) : (owner + 1) * (experts // world)] = 10
    return _made(axes, dtype, generator, bias=bias)


def padded(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """A quarter of the choices is unused (-1), all of some tokens: those answer zero."""
    return _made(axes, dtype, generator, bias=torch.zeros(axes["num_experts"]), ragged=True, unused=0.25)


def _workload(world: int, tokens: int, hidden: int, experts: tuple[int, int], dtype: str, law: str) -> Workload:
    axes = {"world_size": world, "num_tokens": tokens, "hidden_size": hidden}
    return Workload({**axes, "num_experts": experts[0], "top_k": experts[1]}, dtype, law=law)


SPEC = Operator(
    name="all_to_all",
    summary="y[t] = sum over the experts e of token t of weight[t, e] * tanh(gain[e] * x[t] + shift[e]), where e lives",
    signature="all_to_all(tokens, expert_ids, expert_weights, gain, shift, group)",
    axes=("world_size", "num_tokens", "hidden_size", "num_experts", "top_k"),
    inputs=(
        Buffer("tokens", ("num_tokens of this rank", "hidden_size"), doc="may be none"),
        Buffer("expert_ids", ("num_tokens of this rank", "top_k"), "int64", doc="-1: no choice"),
        Buffer("expert_weights", ("num_tokens of this rank", "top_k"), "float32"),
        Buffer("gain", ("num_experts of this rank", "hidden_size"), doc="this rank's equal part", static=True),
        Buffer("shift", ("num_experts of this rank", "hidden_size"), static=True),
    ),
    outputs=(Buffer("y", ("num_tokens of this rank", "hidden_size")),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=C_ACC, c_out=2),
    cost=cost,
    laws={"uniform": uniform, "skewed": skewed, "one_rank": one_rank, "padded": padded},
    workloads=(
        _workload(2, 1, 1, (2, 1), "float32", "uniform"),
        _workload(4, 0, 64, (8, 2), "bfloat16", "uniform"),
        _workload(4, 3, 127, (8, 3), "bfloat16", "uniform"),
        _workload(3, 17, 257, (6, 2), "float32", "skewed"),
        _workload(4, 29, 65, (16, 4), "bfloat16", "skewed"),
        _workload(2, 11, 101, (6, 5), "float16", "one_rank"),
        _workload(4, 13, 33, (8, 2), "float32", "one_rank"),
        _workload(3, 19, 48, (9, 4), "float32", "padded"),
        _workload(4, 64, 256, (32, 8), "bfloat16", "padded"),
        *(
            Workload(
                {"world_size": world, "num_tokens": tokens, "hidden_size": 2048, "num_experts": 256, "top_k": 8},
                "bfloat16", law="skewed", use="target", note=f"Qwen3.6 {what}, EP {world}",
            )
            for world in (2, 4)
            for tokens, what in ((64, "decode, batch 64"), (4096, "prefill"))
        ),
    ),
    source="Lepikhin et al., GShard, 2020; DeepEP for dispatch and combine as two halves of one operator",
    baselines=("torch.distributed.all_to_all_single, twice", "deep_ep.Buffer.dispatch and combine"),
    family="comm",
    wire=wire,
)  # fmt: skip
