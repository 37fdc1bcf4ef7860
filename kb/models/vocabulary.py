"""The closed vocabularies of entries: one word a thing. Standard library only."""

import re
from collections.abc import Mapping
from types import MappingProxyType

KINDS: tuple[str, ...] = ("kernel", "allocation", "comm", "config", "technique", "combination", "target", "campaign")
"""Folder names directly below ``entries/``."""

ENTRY_ID = re.compile(r"^[a-z]+/[a-z0-9]+(?:[_-][a-z0-9]+)*/[a-z0-9]+(?:-[a-z0-9]+)*$")
"""Form of an id: kind, topic (snake_case or kebab-case) and kebab-case slug. Match with ``fullmatch``."""

OUTCOMES: tuple[str, ...] = ("works", "regression", "no_effect", "incorrect", "infeasible", "inconclusive")
"""What came out; everything but ``works`` is a negative result and is found by search all the same."""

EVIDENCE: tuple[str, ...] = ("documented", "reported", "correct", "measured", "confirmed", "end_to_end")
"""Levels of evidence, weakest first."""

FRESHNESS: tuple[str, ...] = ("fresh", "stale", "refuted", "infeasible", "unknown")

TRANSFER: tuple[str, ...] = ("exact", "recompile", "retune", "port", "technique", "none")
"""How an entry reaches an asked device, best first."""

RUNNABLE: frozenset[str] = frozenset({"exact", "recompile", "retune"})
"""Transfer classes in which the entry's own code runs on the device."""

LANGUAGES: tuple[str, ...] = (
    "triton", "torch", "cuda", "cpp", "cute_dsl", "cutlass", "cutile", "tilelang", "gluon", "helion", "hip",
    "python", "none",
)  # fmt: skip

DTYPES: tuple[str, ...] = (
    "float64", "float32", "tfloat32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "float8_e8m0fnu", "nvfp4", "mxfp4", "mxfp8", "int64", "int32", "int8", "int4", "uint8", "bool",
)  # fmt: skip

FEATURES: tuple[str, ...] = (
    "bf16_mma", "fp16_mma", "tf32_mma", "int8_mma", "fp8_mma", "fp4_mma", "wgmma", "tcgen05", "tmem", "tma", "cp_async",
    "clusters", "nvls", "nvlink",
)  # fmt: skip
"""Hardware features an entry may require; ``kb.hardware`` says which architecture has which."""

BOTTLENECKS: tuple[str, ...] = ("dram", "l2", "compute", "latency", "launch", "sync", "comm", "capacity")

PHASES: tuple[str, ...] = ("prefill", "decode", "vision", "training")

RELATIONS: tuple[str, ...] = ("mutated", "ported", "retuned", "composed", "distilled", "bisected")
"""How an entry came from its parent."""

UNJUDGED_OPERATORS: Mapping[str, str] = MappingProxyType(
    {
        "argmax": "index of the largest element of a row",
        "batched_gemm": "one product a head or batch element: [b, m, k] times [b, k, n]",
        "concat": "tensors joined or split",
        "copy": "copies, casts and changes of layout",
        "elementwise": "pointwise arithmetic, fused or not",
        "fill": "memory set to a constant or to random numbers",
        "group_router": "top-k of experts within the best groups, by sigmoid and a bias",
        "host": "framework time between kernels: dispatch, views, allocation",
        "indexing": "gather, scatter and masks",
        "mla_decode": "attention of one token over a compressed latent cache",
        "mla_prefill": "attention whose keys are wider than its values, expanded from a latent",
        "moe_align": "tokens sorted by expert before grouped products",
        "moe_grouped_gemm_fp8": "ragged groups, fp8 operands",
        "pooling": "averages over windows",
        "reduction": "sums, means, maxima along an axis",
        "scan": "cumulative sums and selective scans",
        "sort": "sort and top-k outside of routers and samplers",
    }
)
"""What rows of a target may name beside the operators that the judge has specs for: there is no entry for them yet."""
