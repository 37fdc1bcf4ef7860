"""Tuned parameters whose shape is in the file name: vLLM, SGLang and what follows their lead.

Source:
    The formats as vLLM 0.33.0, SGLang 0.5.23 and huggingface/kernels ship them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kb.errors import SourceFormatError
from kb.importers import devices, tuned
from kb.importers.base import Context, Draft, Exported, Filed, Folder, Item, Skipped
from kb.importers.naming import unsafe_path, windows_fault
from kb.importers.tree import SourceFile
from kb.importers.tuned import Key, Recipe, Table

NEAREST = "The runtime takes the row nearest to the number of tokens: between rows it extrapolates."
_AT_OR_BELOW = "The runtime takes the nearest row at or below the workload."
_TRITON_FOLDER = re.compile(r"triton_(\d+)_(\d+)_(\d+)")
_BLOCK = re.compile(r"\[(\d{1,5}),( ?)(\d{1,5})\]")


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
    notes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    api: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)


def _is_sglang(path: str, key: Key) -> bool:
    block = _BLOCK.fullmatch(key.fields.get("block_shape", ""))
    if "vllm" in path and "sglang" not in path:
        return False
    blank = block is not None and block.group(2) == " "
    return blank or key.down or _triton(path) is not None or "sglang" in path


def _is_vllm(path: str, key: Key) -> bool:
    return not _is_sglang(path, key)


def _anywhere(path: str, key: Key) -> bool:
    del path, key
    return True


def _triton(path: str) -> str | None:
    """Return the Triton version that the file's folder names, or None."""
    parent = path.rpartition("/")[0].rpartition("/")[2]
    found = _TRITON_FOLDER.fullmatch(parent)
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


class KeyedImporter:
    """Reads and writes one family of :data:`SPECS`."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    @property
    def name(self) -> str:
        """What ``--format`` takes."""
        return self.spec.name

    @property
    def summary(self) -> str:
        """What it reads."""
        return self.spec.summary

    def discover(self, folder: Folder) -> Iterable[Item]:
        """Claim files by their names; a ``_down`` file belongs to the one without."""
        mine: dict[str, tuple[SourceFile, Key]] = {}
        for file in folder.files:
            key = tuned.key_of(file.name)
            if key is not None and self._fits(folder.tree.origin_of(file.path).path, key):
                mine[file.name] = (file, key)
        for name, (file, key) in mine.items():
            if self.spec.pairs and key.down and name.replace("_down.json", ".json") in mine:
                continue
            second = mine.get(f"{name.removesuffix('.json')}_down.json") if self.spec.pairs else None
            yield Item(folder.tree, (file, *((second[0],) if second else ())))

    def _fits(self, path: str, key: Key) -> bool:
        spec = self.spec
        names = set(key.fields)
        if not spec.needs <= names or not names <= spec.needs | spec.allowed or (key.down and not spec.pairs):
            return False
        if (len(key.words) == 1) != (spec.word is not None) or len(key.words) > 1:
            return False
        return spec.place(path, key)

    def parse(self, item: Item, context: Context) -> Iterator[Draft | Skipped]:
        """Make one draft of a file or of a pair.

        Raises:
            SourceFormatError: The name or the content is not of this format.
        """
        del context
        spec = self.spec
        origin = item.tree.origin_of(item.path).path
        key = tuned.key_of(item.files[0].name)
        if key is None or any(key.whole(name) is None for name in spec.sizes):
            raise SourceFormatError(f"expected positive sizes for {', '.join(spec.sizes)} in the file's name")
        precision, block = _precision(key)
        body, raw = tuned.read_config(item)
        table = _table(spec, raw)
        further: dict[str, bytes] = {}
        if len(item.files) > 1:
            second, raw_second = tuned.read_config(item, 1)
            _table(spec, raw_second)
            further["config_down.json"] = second
        recipe = self._recipe(key, origin, precision, block, table)
        values = table.values
        if further and values is not None:
            values = tuned.values_digest([values, tuned.values_of(raw_second)])
        yield tuned.config_draft(item, recipe, body=body, values=values, further=further)

    def _recipe(self, key: Key, origin: str, precision: str, block: str, table: Table) -> Recipe:
        spec = self.spec
        device = devices.device_name(key.device or "")
        arch = devices.arch_of(device)
        triton = table.triton or _triton(origin)
        dtype = key.fields.get("dtype", key.fields.get("cache_dtype"))
        dtypes = (
            devices.dtypes_of(dtype, arch) if dtype else ("float16", "bfloat16") if spec.operator == "fused_moe" else ()
        )
        extra = [
            (name, key.fields[name]) for name in ("provider", "backend", "per_channel_quant") if name in key.fields
        ]
        return Recipe(
            project=spec.project,
            kernel=_kernel(spec, key),
            topic=spec.topic,
            what=f"{key.words[0]}" if key.words else spec.what,
            key=[*((name, key.fields[name]) for name in key.fields if name in spec.sizes), *extra, *_second(key)],
            device=device,
            axes={axis: int(key.fields[name]) for name, axis in spec.sizes.items()},
            operator=spec.operator,
            applies_to=spec.applies_to,
            dtypes=dtypes,
            precision=" ".join(part for part in (precision, block) if part),
            toolchain={"triton": triton} if triton else {},
            rows=tuple(table.rows),
            lookup=spec.lookup,
            notes=(*spec.notes, *self._warnings(key, device, dtype, triton)),
            tags=(*spec.tags, *(f"{name}{key.fields[name]}" for name in spec.sizes)),
            api=spec.api,
        )

    def _warnings(self, key: Key, device: str, dtype: str | None, triton: str | None) -> Iterator[str]:
        if device == devices.UNKNOWN:
            yield "The file names no device: nobody can say whom it was tuned for."
        if dtype is None and self.spec.operator == "fused_moe":
            yield "The name states no dtype, which means 16 bits: bfloat16 or float16, not told apart."
        if triton is None and "triton" in self.spec.kernel.lower():
            yield "The file does not say with which Triton it was tuned."
        if key.down:
            yield "For the second matrix product (down projection) alone; the first has no file here."

    def can_export(self, entry: Filed) -> bool:
        """Tell whether an entry came from this format."""
        return _path_of(entry, self.spec) is not None and "config.json" in entry.files

    def export(self, entries: Iterable[Filed]) -> Iterator[Exported | Skipped]:
        """Write the files under the names and folders that the runtime looks for, byte for byte as they came."""
        for entry in entries:
            path = _path_of(entry, self.spec)
            if path is None or "config.json" not in entry.files:
                yield Skipped(entry.id, f"it is no {self.spec.name} file", refused=False)
                continue
            fault = unsafe_path(path)
            if fault is not None:
                yield Skipped(entry.id, f"its source path cannot be written: {fault}")
                continue
            yield Exported(path, entry.files["config.json"])
            if "config_down.json" in entry.files:
                yield Exported(f"{path.removesuffix('.json')}_down.json", entry.files["config_down.json"])


def _path_of(entry: Filed, spec: Spec) -> str | None:
    """Return the path to export to: the version's folder, if there is one, and the name."""
    path = str(entry.facts.get("source", {}).get("path", ""))
    name = path.rpartition("/")[2]
    key = tuned.key_of(name)
    importer = KeyedImporter(spec)
    if key is None or not importer._fits(path, key) or windows_fault(name) is not None:
        return None
    parent = path.rpartition("/")[0].rpartition("/")[2]
    return f"{parent}/{name}" if _TRITON_FOLDER.fullmatch(parent) else name


def _kernel(spec: Spec, key: Key) -> str:
    if "backend" in key.fields:
        return f"{spec.project} fused_moe ({key.fields['backend']})"
    return " ".join([spec.kernel, *key.words, *((key.fields["provider"],) if "provider" in key.fields else ())])


def _second(key: Key) -> list[tuple[str, str]]:
    return [("gemm", "down")] if key.down else []


def _precision(key: Key) -> tuple[str, str]:
    block = key.fields.get("block_shape", "")
    found = _BLOCK.fullmatch(block)
    if block and found is None:
        raise SourceFormatError(f"block_shape: expected [n,k], found {block[:40]!r}")
    dtype = key.fields.get("dtype", key.fields.get("cache_dtype", ""))
    if dtype and not re.fullmatch(r"\w{1,40}", dtype):
        raise SourceFormatError(f"dtype: expected a word, found {dtype[:40]!r}")
    return dtype, f"[{found.group(1)},{found.group(3)}]" if found else ""


def _table(spec: Spec, raw: Mapping[str, Any]) -> Table:
    if spec.rows is None:
        return tuned.points_of(raw)
    inner = raw.get(spec.rows.lstrip("*"))
    if not isinstance(inner, dict) or not inner:
        raise SourceFormatError(f"{spec.rows.lstrip('*')}: expected an object with rows")
    if spec.rows.startswith("*"):
        return Table(inner, None, tuned.values_of(raw))
    return tuned.points_of(inner)


IMPORTERS = tuple(KeyedImporter(spec) for spec in SPECS)
