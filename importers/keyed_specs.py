"""Families of file names that hold a shape: which project writes them, and what their fields are.

Source:
    The formats as vLLM 0.33.0, SGLang 0.5.23 and huggingface/kernels ship them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kb.importers.tuned import Key

NEAREST = "The runtime takes the row nearest to the number of tokens: between rows it extrapolates."
_AT_OR_BELOW = "The runtime takes the nearest row at or below the workload."
TRITON_FOLDER = re.compile(r"triton_(\d+)_(\d+)_(\d+)")
BLOCK = re.compile(r"\[(\d{1,5}),( ?)(\d{1,5})\]")


@dataclass(frozen=True)
class Spec:
    """One family of file names."""

    name: str
    summary: str
    project: str
    kernel: str
    what: str
    topic: str
    operator: str | None
    needs: frozenset[str]
    """Fields that a name must have; every one of ``sizes`` must be a number."""
    allowed: frozenset[str]
    """Further fields that it may have."""
    sizes: Mapping[str, str]
    """Field → axis."""
    place: Callable[[str, Key], bool]
    """Whether a path (as published, if that is known) and its key belong to this project."""
    word: str | None = None
    """A part without ``=`` that must stand there; ``*`` for any one."""
    applies_to: tuple[str, ...] = ()
    lookup: str = NEAREST
    pairs: bool = False
    """``_down`` names the second of a pair."""
    rows: str | None = None
    """Where the table is; None for the outermost object. ``*`` for an object that is not checked row by row."""
    row_words: bool = False
    """A row may be one word: the name of a strategy."""
    notes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    api: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)


def _is_sglang(path: str, key: Key) -> bool:
    block = BLOCK.fullmatch(key.fields.get("block_shape", ""))
    if "vllm" in path and "sglang" not in path:
        return False
    blank = block is not None and block.group(2) == " "
    return blank or key.down or triton_of(path) is not None or "sglang" in path


def _is_vllm(path: str, key: Key) -> bool:
    return not _is_sglang(path, key)


def _anywhere(path: str, key: Key) -> bool:
    del path, key
    return True


def triton_of(path: str) -> str | None:
    """Return the Triton version that the file's folder names, or None."""
    parent = path.rpartition("/")[0].rpartition("/")[2]
    found = TRITON_FOLDER.fullmatch(parent)
    return ".".join(found.groups()) if found else None


_MOE_NOTES = (
    "N is the width a rank holds after tensor parallelism; the hidden size is not in the key.",
    "The key does not say which routing it was tuned with.",
)
_MOE = {"E": "num_experts", "N": "intermediate_size"}
_MOE_FIELDS = frozenset({"dtype", "block_shape", "per_channel_quant", "backend"})
_MOE_TAGS = ("moe", "fused-moe", "block-sizes", "num-warps", "num-stages")
_GEMM_TAGS = ("gemm", "block-sizes", "num-warps", "num-stages")

SPECS: tuple[Spec, ...] = (
    Spec(
        name="sglang-fused-moe",
        summary="SGLang's tuned parameters of fused MoE, a pair with _down where both were tuned",
        project="SGLang",
        kernel="SGLang fused_moe (Triton)",
        what="fused MoE",
        topic="fused_moe",
        operator="fused_moe",
        applies_to=("grouped_gemm",),
        needs=frozenset({"E", "N", "device_name"}),
        allowed=_MOE_FIELDS,
        sizes=_MOE,
        place=_is_sglang,
        pairs=True,
        notes=(
            *_MOE_NOTES,
            "E may count fused shared experts (257 = 256 + 1): it need not be the model's number of experts.",
            "The runtime falls back to other Triton versions' folders: that a file is found does not say it fits.",
        ),
        tags=_MOE_TAGS,
        api=("fused_moe_triton_config", "get_moe_configs", "fused_moe_kernel"),
    ),
    Spec(
        name="vllm-fused-moe",
        summary="vLLM's tuned parameters of fused MoE: E=…,N=…,device_name=….json",
        project="vLLM",
        kernel="vLLM fused_moe (Triton)",
        what="fused MoE",
        topic="fused_moe",
        operator="fused_moe",
        applies_to=("grouped_gemm",),
        needs=frozenset({"E", "N", "device_name"}),
        allowed=_MOE_FIELDS,
        sizes=_MOE,
        place=_is_vllm,
        notes=(*_MOE_NOTES, "Where no file matches, vLLM takes default parameters and only a log line says so."),
        tags=_MOE_TAGS,
        api=("get_moe_configs", "fused_moe_kernel", "benchmark_moe"),
    ),
    Spec(
        name="sglang-block-gemm",
        summary="SGLang's tuned parameters of block-scaled GEMM: N=…,K=…,device_name=….json",
        project="SGLang",
        kernel="SGLang w8a8_block_fp8_matmul (Triton)",
        what="block-scaled GEMM",
        topic="gemm_fp8_block",
        operator="gemm_fp8_block",
        needs=frozenset({"N", "K", "device_name", "dtype"}),
        allowed=frozenset({"block_shape"}),
        sizes={"N": "n", "K": "k"},
        place=_is_sglang,
        tags=_GEMM_TAGS,
        api=("w8a8_block_fp8_matmul", "get_w8a8_block_fp8_configs"),
    ),
    Spec(
        name="vllm-block-gemm",
        summary="vLLM's tuned parameters of block-scaled GEMM: N=…,K=…,device_name=….json",
        project="vLLM",
        kernel="vLLM w8a8_block_fp8_matmul (Triton)",
        what="block-scaled GEMM",
        topic="gemm_fp8_block",
        operator="gemm_fp8_block",
        needs=frozenset({"N", "K", "device_name", "dtype"}),
        allowed=frozenset({"block_shape"}),
        sizes={"N": "n", "K": "k"},
        place=_is_vllm,
        tags=_GEMM_TAGS,
        api=("w8a8_block_fp8_matmul", "get_w8a8_block_fp8_configs"),
    ),
    Spec(
        name="keyed-gemm",
        summary="Tuned parameters of a plain GEMM in the same form: N=…,K=…,device_name=….json",
        project="Triton",
        kernel="a Triton GEMM of the source",
        what="GEMM",
        topic="gemm",
        operator="gemm",
        needs=frozenset({"N", "K", "device_name"}),
        allowed=frozenset(),
        sizes={"N": "n", "K": "k"},
        place=_anywhere,
        notes=("The file names neither the kernel nor the dtype; the kernel lies beside it in the source.",),
        tags=_GEMM_TAGS,
    ),
    Spec(
        name="vllm-mamba",
        summary="vLLM's tuned parameters of the Mamba selective state update: headdim=…,dstate=….json",
        project="vLLM",
        kernel="vLLM selective_state_update (Triton)",
        what="selective state update",
        topic="selective_state_update",
        operator=None,
        needs=frozenset({"headdim", "dstate", "device_name", "cache_dtype"}),
        allowed=frozenset(),
        sizes={"headdim": "head_dim", "dstate": "state_dim"},
        place=_anywhere,
        lookup="Rows are by effective batch (batch x heads); the nearest one is taken.",
        tags=("mamba", "ssm", "decode", "selective-state-update"),
        api=("selective_state_update", "_selective_scan_update_kernel"),
    ),
    Spec(
        name="sglang-lora",
        summary="SGLang's tuned parameters of LoRA shrink and expand: lora_shrink,K=…,R=…,S=…,device=….json",
        project="SGLang",
        kernel="SGLang chunked segmented LoRA (Triton)",
        what="LoRA",
        topic="lora",
        operator=None,
        needs=frozenset({"K", "R", "S", "device"}),
        allowed=frozenset({"N"}),
        sizes={"K": "k", "R": "rank", "S": "slices"},
        place=_anywhere,
        word="*",
        tags=("lora", "gemm"),
    ),
    Spec(
        name="sglang-base-gemm",
        summary="SGLang's grouped base GEMM by token width: provider=…,E=…,N1=…,N2=…,K=…,device_name=….json",
        project="SGLang",
        kernel="SGLang base_gemm",
        what="grouped GEMM",
        topic="grouped_gemm",
        operator="grouped_gemm",
        applies_to=("fused_moe",),
        needs=frozenset({"provider", "E", "N1", "N2", "K", "device_name"}),
        allowed=frozenset(),
        sizes={"E": "num_experts", "N1": "n1", "N2": "n2", "K": "k"},
        place=_anywhere,
        rows="buckets",
        lookup="Buckets name token counts; each gives a token width, which `tiles` describes.",
        tags=("moe", "grouped-gemm"),
    ),
    Spec(
        name="sglang-moe-front",
        summary="SGLang's MoE front stages: epilogue,E=…,topk=…,device_name=….json",
        project="SGLang",
        kernel="SGLang moe_front",
        what="MoE front",
        topic="topk_router",
        operator="topk_router",
        needs=frozenset({"E", "topk", "device_name"}),
        allowed=frozenset(),
        sizes={"E": "num_experts", "topk": "top_k"},
        place=_anywhere,
        word="*",
        rows="configs",
        row_words=True,
        tags=("moe", "routing", "epilogue"),
    ),
    Spec(
        name="sglang-collective",
        summary="SGLang's sequence-parallel collectives: world=…,H=…,device_name=….json",
        project="SGLang",
        kernel="SGLang sequence-parallel collectives",
        what="collectives",
        topic="all_gather",
        operator=None,
        applies_to=("all_gather", "reduce_scatter", "all_reduce_rmsnorm"),
        needs=frozenset({"world", "H", "device_name"}),
        allowed=frozenset(),
        sizes={"world": "world_size", "H": "hidden_size"},
        place=_anywhere,
        rows="*configs",
        lookup=_AT_OR_BELOW,
        notes=("The file says itself how candidates were checked and when the fallback wins: see `selection`.",),
        tags=("collective", "sequence-parallel", "push", "pull", "nvls"),
    ),
)
