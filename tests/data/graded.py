"""Makes ``graded.jsonl`` from the queries and the two graders' grades, and says how far the graders agree.

Entries that came later get the grades of their siblings there and in the files of single authors.

python tests/data/graded.py
"""

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kb.retrieval.metrics import USEFUL, kappa

FOLDER = Path(__file__).parent
NOT_A_KIND = "negative result"
"""Noted as a kind by the author of two queries: an outcome is what it is, so it filters nothing."""
LATER = {
    "kernel/attention_prefill/split-keys-packed-heads": "kernel/attention_prefill/flash-tiles",
    "kernel/attention_window/keys-rotated-once": "kernel/attention_window/window-batch-rope-2d",
    "kernel/causal_conv1d_update/wide-filter-walk": "kernel/causal_conv1d_update/rolling-state",
    "kernel/conv2d/tma-shifted-boxes": "kernel/conv2d/implicit-gemm-3x3",
    "kernel/depthwise_conv2d/row-stack-tile": "kernel/depthwise_conv2d/register-window-7x7",
    "kernel/fused_add_rmsnorm/cuda-row-in-registers": "kernel/fused_add_rmsnorm/one-pass-residual",
    "kernel/fused_moe/slot-gemv": "kernel/fused_moe/sorted-tokens",
    "kernel/gated_delta_decode/resident-column-ring": "kernel/gated_delta_decode/state-in-registers",
    "kernel/gated_rmsnorm/token-walk": "kernel/gated_rmsnorm/silu-gate-per-head",
    "kernel/gelu/short-tail-walk": "kernel/gelu/tanh-or-erf-elementwise",
    "kernel/gemm/tma-walk-split-tail": "kernel/gemm/grouped-tile-order",
    "kernel/gemm_bias_gelu/resident-tma-tiles": "kernel/gemm_bias_gelu/epilogue-fused",
    "kernel/gemm_fp8/resident-wide-spans": "kernel/gemm_fp8/per-tensor-scaled",
    "kernel/gemm_fp8/tma-wide-spans": "kernel/gemm_fp8/per-tensor-scaled",
    "kernel/gemm_fp8_block/row-stream": "kernel/gemm_fp8_block/block-scaled-128",
    "kernel/gemm_nvfp4/decode-once-tma": "kernel/gemm_nvfp4/w4a16-dequant",
    "kernel/gemm_nvfp4/resident-x-row-walk": "kernel/gemm_nvfp4/w4a16-dequant",
    "kernel/grouped_gemm/fragment-stream": "kernel/grouped_gemm/persistent-tile-scheduler",
    "kernel/groupnorm/walk-back-through-l2": "kernel/groupnorm/split-group-chan-merge",
    "kernel/kv_append/slot-gather": "kernel/kv_append/slot-scatter",
    "kernel/l2norm/token-walk": "kernel/l2norm/per-head-rows",
    "kernel/layernorm/resident-row-walk": "kernel/layernorm/welford-free-two-moment",
    "kernel/mask_decode/depth-pipeline": "kernel/mask_decode/batched-wide-n",
    "kernel/moe_grouped_gemm_nvfp4/fragment-stream": "kernel/moe_grouped_gemm_nvfp4/dequant-in-registers",
    "kernel/patch_embed/pack-then-tma": "kernel/patch_embed/gemm-no-im2col",
    "kernel/patch_embed/padded-rows": "kernel/patch_embed/gemm-no-im2col",
    "kernel/quantize_nvfp4/thread-per-block": "kernel/quantize_nvfp4/two-level-scale",
    "kernel/rmsnorm/row-walk": "kernel/rmsnorm/row-per-cta",
    "kernel/rmsnorm/short-rows-early-launch": "kernel/rmsnorm/multi-row-per-cta",
    "kernel/rmsnorm_quantize_fp8/cuda-one-barrier": "kernel/rmsnorm_quantize_fp8/per-token-scale",
    "kernel/rope_2d/token-angles-shared": "kernel/rope_2d/axis-split",
    "kernel/rope_kv_append/slot-gather": "kernel/rope_kv_append/partial-rotary-paged",
    "kernel/sample_categorical/stop-at-token": "kernel/sample_categorical/block-scan",
    "kernel/sigmoid_mul/flat-early-launch": "kernel/sigmoid_mul/output-gate",
    "kernel/sigmoid_mul/flat-token-walk": "kernel/sigmoid_mul/output-gate",
    "kernel/silu_and_mul/flat-early-launch": "kernel/silu_and_mul/flat-vectorised",
    "kernel/silu_and_mul/row-walk": "kernel/silu_and_mul/flat-vectorised",
    "kernel/silu_and_mul_quantize/row-walk": "kernel/silu_and_mul_quantize/fp8-per-token",
    "kernel/top_k_top_p/pairwise-ranks": "kernel/top_k_top_p/threshold-bisection",
    "kernel/topk_router/cuda-redux-per-choice": "kernel/topk_router/one-warp-per-row",
}
"""Entries that came after the grading → the graded one of the same operator, whose grades they have.

They are added after merging, so that no agreement of the graders is counted twice.
"""
TUNING = ("tuning.jsonl", "tuning_third.jsonl")
"""Files of one author each, which get the later entries in place."""


@dataclass(frozen=True)
class Agreement:
    """How far two graders agree."""

    kappa: float
    """Quadratic-weighted Cohen's kappa over all queries with all entries that either graded for any of them."""
    strict_kappa: float
    """The same over the pairs of query and entry that either gave a grade above 0: agreeing on a 0 earns nothing."""
    overlap: float
    """Pairs that both found useful (grade 2 or 3), over those that either did."""
    pairs: int


def read(name: str) -> list[dict[str, Any]]:
    """Return the lines of one file."""
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def half_of(query: str) -> str:
    """Return the half that a query belongs to, by the last bit of its text's sha256."""
    return "test" if hashlib.sha256(query.encode()).digest()[-1] % 2 else "tune"


def merged(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    """Return the mean of two graders' grades, halves rounded up."""
    every = sorted({*first, *second})
    means = {one: (first.get(one, 0) + second.get(one, 0) + 1) // 2 for one in every}
    return {one: grade for one, grade in means.items() if grade > 0}


def with_later(relevant: Mapping[str, int]) -> dict[str, int]:
    """Return the grades with those of the later entries, best first; grades that are there already stay."""
    every = {new: relevant[same] for new, same in LATER.items() if same in relevant} | dict(relevant)
    return dict(sorted(every.items(), key=lambda one: (-one[1], one[0])))


def graded() -> list[dict[str, Any]]:
    """Return the lines of ``graded.jsonl``."""
    found = []
    for query, first, second in zip(read("queries.jsonl"), read("grades_1.jsonl"), read("grades_2.jsonl"), strict=True):
        if not query["query"] == first["query"] == second["query"]:
            raise ValueError(f"the files do not belong together at {query['query']!r}")
        scope = {name: value for name, value in (query.get("scope") or {}).items() if value != NOT_A_KIND}
        relevant = merged(first["relevant"], second["relevant"])
        if max(relevant.values(), default=0) < USEFUL:
            continue
        line = {"query": query["query"], "relevant": with_later(relevant)}
        line |= {"scope": scope} if scope else {}
        found.append(line | {"origin": query["origin"], "half": half_of(query["query"])})
    return found


def agreement(first: Iterable[Mapping[str, Any]], second: Iterable[Mapping[str, Any]]) -> Agreement:
    """Compare the grades of two graders, in the same order of queries."""
    rows = [(one["relevant"], other["relevant"]) for one, other in zip(first, second, strict=True)]
    entries = sorted({entry for row in rows for grades in row for entry in grades})
    every = [(left.get(entry, 0), right.get(entry, 0)) for left, right in rows for entry in entries]
    pairs = [pair for pair in every if pair != (0, 0)]
    both = sum(min(pair) >= USEFUL for pair in pairs)
    either = sum(max(pair) >= USEFUL for pair in pairs)
    return Agreement(kappa(every), kappa(pairs), both / either, len(pairs))


def write(name: str, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write the lines of one file."""
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    made = graded()
    write("graded.jsonl", made)
    for name in TUNING:
        write(name, [{**line, "relevant": with_later(line["relevant"])} for line in read(name)])
    found = agreement(read("grades_1.jsonl"), read("grades_2.jsonl"))
    halves = {half: sum(line["half"] == half for line in made) for half in ("tune", "test")}
    sys.stdout.write(f"{len(made)} queries ({halves}); kappa {found.kappa:.3f}, ")
    sys.stdout.write(
        f"without agreed zeros {found.strict_kappa:.3f}, overlap {found.overlap:.3f} over {found.pairs} pairs\n"
    )
