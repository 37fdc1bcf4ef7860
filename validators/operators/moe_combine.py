"""The end of an MoE layer: every token's rows, one from each of its experts, weighted by the router and added up."""

from typing import cast

import torch

from kb.validators.operators.draws import mixed, signs
from kb.validators.operators.grouped_gemm import rows
from kb.validators.operators.spec import DTYPES, Arguments, Axes, Buffer, Cost, ErrorModel, Operator, Workload, itemsize


def _gathered(
    expert_out: torch.Tensor, slot_to_row: torch.Tensor, topk_weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return every slot's row, float64 [num_tokens, top_k, hidden_size], zeros for -1, and its weight [.., 1]."""
    present = (slot_to_row >= 0).unsqueeze(-1)
    found = expert_out[slot_to_row.clamp_min(0).long()].double()
    return torch.where(present, found, 0.0), topk_weights.double().unsqueeze(-1)


def reference(
    expert_out: torch.Tensor, slot_to_row: torch.Tensor, topk_weights: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return sum over slots of weight * row in float64 [num_tokens, hidden_size]."""
    found, share = _gathered(expert_out, slot_to_row, topk_weights)
    return ((share * found).sum(1),)


def condition(
    expert_out: torch.Tensor, slot_to_row: torch.Tensor, topk_weights: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return S = sqrt(sum w^2 x^2)."""
    found, share = _gathered(expert_out, slot_to_row, topk_weights)
    return ((share * found).square().sum(1).sqrt(),)


def cost(axes: Axes, dtype: str) -> Cost:
    """2 T k H; every row and y once, and 8 bytes a slot for its row number and weight. No slot is -1."""
    slots = axes["num_tokens"] * axes["top_k"]
    moved = (slots + axes["num_tokens"]) * axes["hidden_size"] * itemsize(dtype) + 8 * slots
    return Cost(flops=2 * slots * axes["hidden_size"], essential_bytes=moved)


def _slots(axes: Axes, generator: torch.Generator) -> torch.Tensor:
    """Draw where each slot's row lies after a sort by expert: a permutation, int32 [num_tokens, top_k]."""
    tokens, top_k = axes["num_tokens"], axes["top_k"]
    return torch.randperm(tokens * top_k, generator=generator).reshape(tokens, top_k).to(torch.int32)


def _shares(axes: Axes, generator: torch.Generator) -> torch.Tensor:
    """Draw renormalised weights times a routed scaling factor of 2.5, float32 [num_tokens, top_k]."""
    return 2.5 * torch.randn(axes["num_tokens"], axes["top_k"], generator=generator).softmax(-1)


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-3 … 2^3 in any order; softmax weights times 2.5, so that the sum is no average."""
    found = rows(axes["num_tokens"] * axes["top_k"], axes["hidden_size"], dtype, generator)
    return found, _slots(axes, generator), _shares(axes, generator)


def in_order(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows by slot, as a grouped product leaves them that scatters its own results: no gather is needed."""
    found, slots, shares = cast(tuple[torch.Tensor, ...], normal(axes, dtype, generator))
    return found, torch.arange(slots.numel(), dtype=torch.int32).reshape(slots.shape), shares


def elsewhere(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """About half of the experts on other ranks: their slots are -1, and rows that nobody names are NaN.

    Rows of a buffer that no product wrote hold anything: a weight of zero does not undo a NaN.
    """
    found, slots, shares = cast(tuple[torch.Tensor, ...], normal(axes, dtype, generator))
    slots = torch.where(torch.rand(slots.shape, generator=generator) < 0.5, -1, slots)
    unnamed = torch.ones(found.shape[0], dtype=torch.bool)
    unnamed[slots[slots >= 0].long()] = False
    found[unnamed] = torch.nan
    return found, slots, shares


def one_sided(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Nearly all weight on one slot a token, at any place, and the others down to exactly zero."""
    found, slots, shares = cast(tuple[torch.Tensor, ...], normal(axes, dtype, generator))
    sharp = torch.softmax(40 * torch.log(shares), -1)
    return found, slots, torch.where(sharp < 1e-6, 0.0, sharp)


def cancelling(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Every second slot nearly the negative of the slot before it: sums far smaller than what is added."""
    found, slots, shares = cast(tuple[torch.Tensor, ...], normal(axes, dtype, generator))
    shares = shares[:, :1].expand_as(shares).contiguous()
    pairs = axes["top_k"] // 2
    first, second = slots[:, 0 : 2 * pairs : 2].long(), slots[:, 1 : 2 * pairs : 2].long()
    wobble = 1 + 2.0**-4 * torch.randn(found[first].shape, generator=generator)
    found[second] = (-found[first].float() * wobble).to(found.dtype)
    return found, slots, shares


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-8 … 2^8 behind a nominal one, their last columns 16 times the rest: order of sums matters."""
    shape = (axes["num_tokens"] * axes["top_k"], axes["hidden_size"])
    return mixed(shape, generator).to(DTYPES[dtype]), _slots(axes, generator), _shares(axes, generator)


def integers(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows and weights of -1, 0 and 1: every order of summation gives the same sum."""
    shape = (axes["num_tokens"] * axes["top_k"], axes["hidden_size"])
    shares = signs((axes["num_tokens"], axes["top_k"]), generator)
    return signs(shape, generator).to(DTYPES[dtype]), _slots(axes, generator), shares


AXES = ("num_tokens", "hidden_size", "top_k")


def _case(
    sizes: tuple[int, int, int], dtype: str, *, law: str = "normal", use: str = "awkward", note: str = ""
) -> Workload:
    return Workload(dict(zip(AXES, sizes, strict=True)), dtype, law=law, use=use, note=note)


SPEC = Operator(
    name="moe_combine",
    summary="y[t] = sum over slots of topk_weights[t, j] * expert_out[slot_to_row[t, j]], slots of -1 left out",
    signature="moe_combine(expert_out, slot_to_row, topk_weights)",
    axes=AXES,
    inputs=(
        Buffer(
            "expert_out",
            ("num_tokens*top_k", "hidden_size"),
            doc="what a grouped product returns, rows sorted by expert; rows that no slot names may hold anything",
        ),
        Buffer(
            "slot_to_row", ("num_tokens", "top_k"), "int32", "row of each slot; -1: computed elsewhere, adds nothing"
        ),
        Buffer("topk_weights", ("num_tokens", "top_k"), "float32", "already renormalised and scaled"),
    ),
    outputs=(Buffer("y", ("num_tokens", "hidden_size")),),
    dtypes=("float32", "float16", "bfloat16"),
    reference=reference,
    condition=condition,
    error=ErrorModel(accumulate="float32", c_acc=32, c_out=2),
    cost=cost,
    laws={
        "normal": normal,
        "in_order": in_order,
        "elsewhere": elsewhere,
        "one_sided": one_sided,
        "cancelling": cancelling,
        "mixed_scale": mixed_scale,
        "integers": integers,
    },
    exact_laws=("integers",),
    workloads=(
        _case((1, 1, 1), "float32"),
        _case((0, 64, 4), "bfloat16", note="no token"),
        _case((7, 131, 8), "bfloat16"),
        _case((3, 1025, 6), "float16", note="one column more than a power of two"),
        _case((13, 40, 3), "float32", law="in_order"),
        _case((5, 72, 8), "bfloat16", law="in_order"),
        _case((11, 65, 4), "bfloat16", law="elsewhere"),
        _case((17, 33, 2), "float32", law="elsewhere"),
        _case((9, 48, 8), "bfloat16", law="one_sided"),
        _case((5, 129, 8), "float32", law="cancelling"),
        _case((6, 37, 4), "float16", law="cancelling"),
        _case((4, 127, 8), "float32", law="mixed_scale"),
        _case((7, 63, 5), "bfloat16", law="mixed_scale"),
        _case((5, 31, 8), "float32", law="integers"),
        _case((9, 17, 9), "bfloat16", law="integers"),
        _case((1, 2048, 8), "bfloat16", use="target", note="Qwen3.6 decode"),
        _case((32, 2048, 8), "bfloat16", use="target", note="Qwen3.6, 32 sequences"),
        _case((1024, 2048, 8), "bfloat16", use="target", note="Qwen3.6 prefill"),
        _case((4096, 2048, 8), "bfloat16", use="target", note="Qwen3.6 prefill"),
    ),
    source="Shazeer et al., Outrageously Large Neural Networks, 2017; vLLM moe_unpermute",
    baselines=("weighted_gather_compiled", "weighted_gather"),
    rivals=("vllm moe_unpermute", "TensorRT-LLM finalizeMoeRouting"),
)
