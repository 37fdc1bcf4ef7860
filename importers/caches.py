"""What tuners leave on a machine: Triton's autotune cache, FlashInfer's autotuner cache, PyTorch's TunableOp.

Source:
    triton-lang/triton#6261 for ``<kernel>.autotune.json``; FlashInfer's page on its autotuner; PyTorch's
    ``aten/src/ATen/cuda/tunable/README.md``.
"""

import ast
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kb.errors import SourceFormatError
from kb.importers import devices, kernels, tuned
from kb.importers.base import Context, Draft, Folder, Item, Skipped
from kb.importers.naming import topic
from kb.importers.reading import json_of, object_of, text_of
from kb.importers.tuned import Recipe, check_parameter

_LONGEST_MS = 3.6e6
_NEEDS_DEVICE = "the format does not name the device it was tuned on: give --device, as the device reports itself"
_CONSTRUCTED = "the readme beside it says that it is constructed, not collected"


def _is_constructed(item: Item) -> bool:
    """Tell whether the folder's readme says in its heading that its figures are invented."""
    folder = item.files[0].folder
    head = item.tree.head(f"{folder}/README.md" if folder else "README.md", 200)
    return b"constructed" in head.split(b"\n", 1)[0].lower()


def _device(context: Context) -> str:
    if context.device is None:
        raise SourceFormatError(_NEEDS_DEVICE)
    return devices.device_name(context.device)


class TritonCache:
    """Triton with ``cache_results=True``: timings of all configurations of one kernel at one key."""

    name = "triton-autotune"
    summary = "Triton's autotune cache: KERNEL.autotune.json; needs --device, which it does not name"

    def discover(self, folder: Folder) -> Iterable[Item]:
        """Claim files by their names."""
        return [Item(folder.tree, (file,)) for file in folder.files if file.name.endswith(".autotune.json")]

    def parse(self, item: Item, context: Context) -> Iterator[Draft | Skipped]:
        """Make one draft: the fastest configuration, with its timing as a claim.

        Raises:
            SourceFormatError: The content is not of this format, or no device is given.
        """
        if _is_constructed(item):
            yield Skipped(item.path, _CONSTRUCTED)
            return
        device = _device(context)
        body = item.tree.read(item.path, limit=tuned.MAX_CONFIG_BYTES)
        raw = object_of(body, infinity=True, depth=14)
        key, timings = _triton_content(raw)
        failed = [config for config, times in timings if times is None]
        done = [(config, times) for config, times in timings if times is not None]
        if not done:
            yield Skipped(item.path, "every configuration failed")
            return
        best, times = min(done, key=lambda pair: pair[1])
        kernel = item.files[0].name.removesuffix(".autotune.json")
        operator, applies_to = kernels.meaning_of(kernel)
        sizes = [text for text in key if re.fullmatch(r"[0-9]{1,9}", text)]
        words = [text.removeprefix("torch.") for text in key if text not in sizes]
        recipe = Recipe(
            project="Triton",
            kernel=f"{kernel} (Triton)",
            topic=topic(operator or next(iter(applies_to), kernel)),
            what=f"autotune {kernel}",
            variant=f"autotune {kernel}",
            key=[(f"k{place}", text) for place, text in enumerate(sizes)],
            device=device,
            operator=operator,
            applies_to=applies_to,
            dtypes=tuple(dict.fromkeys(one for word in words for one in devices.dtypes_of(word))),
            precision=words[0] if words else "",
            toolchain=dict(context.toolchain),
            rows=tuple(f"configuration {place + 1}" for place in range(len(timings))),
            lookup=f"The key is {', '.join(key)}; the fastest is {_shown(best)}.",
            notes=(
                f"{len(failed)} of {len(timings)} configurations failed.",
                "Device and toolchain are not in the file: they are what whoever imported it said.",
            ),
            tags=("autotune", "triton-cache", kernel.replace("_", "-")),
            timed=True,
        )
        plain = body if not failed else _without_infinity(raw)
        draft = tuned.config_draft(item, recipe, body=body)
        files = {"config.json": plain, **({"autotune.txt": body} if failed else {})}
        workload = f"key {' '.join(key)}"[:160]
        claim = _claim(times[0] * 1000.0, device, workload, f"{kernel}: {_shown(best)}", draft)
        yield replace(draft, files=files, facts={**draft.facts, "claims": [claim]})


def _triton_content(raw: Mapping[str, Any]) -> tuple[list[str], list[tuple[dict[str, Any], list[float] | None]]]:
    key, listed = raw.get("key"), raw.get("configs_timings")
    if not isinstance(key, list) or not isinstance(listed, list) or not listed or len(key) > 60:
        raise SourceFormatError("expected key and configs_timings")
    made = []
    for pair in listed:
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], dict)):
            raise SourceFormatError("expected pairs of configuration and timings")
        for name, value in _flat(pair[0]):
            check_parameter(name, value)
        made.append((pair[0], _times(pair[1])))
    return [str(text)[:60] for text in key], made


def _flat(config: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for name, value in config.items():
        if isinstance(value, dict):
            yield from value.items()
        else:
            yield name[:60], value


def _times(value: object) -> list[float] | None:
    """Return median, 20th and 80th percentile in ms; None for a configuration that failed."""
    given = value if isinstance(value, list) else [value]
    times = [one for one in given if isinstance(one, int | float) and not isinstance(one, bool)]
    if not times or len(times) != len(given):
        raise SourceFormatError("expected timings in ms")
    if any(math.isinf(one) for one in times):
        return None
    if not all(0 < one < _LONGEST_MS for one in times):
        raise SourceFormatError(f"expected timings above 0 and below an hour in ms, found {times[0]!r}")
    return [float(one) for one in times]


def _without_infinity(raw: object) -> bytes:
    """Write JSON with null for what failed: Infinity is none."""

    def mended(value: object) -> object:
        if isinstance(value, dict):
            return {name: mended(one) for name, one in value.items()}
        if isinstance(value, list):
            return [mended(one) for one in value]
        return None if isinstance(value, float) and math.isinf(value) else value

    return (json.dumps(mended(raw), indent=2) + "\n").encode("utf-8")


def _shown(config: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in _flat(config) if value is not None)[:100]


def _claim(value_us: float, device: str, workload: str, backend: str, draft: Draft) -> dict[str, Any]:
    return {
        "metric": "latency_us",
        "value": float(f"{value_us:.6g}"),
        "unit": "us",
        "better": "lower",
        "device": device[:80],
        "workload": workload[:160],
        "backend": backend[:120],
        "source": f"{draft.provenance.repository}, {draft.provenance.path}"[:300],
    }


class FlashInferCache:
    """FlashInfer's autotuner: runner and tactic by operation and shapes."""

    name = "flashinfer-autotune"
    summary = "FlashInfer's autotuner cache: one object with _metadata and keys that are texts of Python tuples"

    def discover(self, folder: Folder) -> Iterable[Item]:
        """Claim JSON files whose beginning names FlashInfer's metadata."""
        for file in folder.files:
            if file.name.endswith(".json"):
                head = folder.tree.head(file.path, 512)
                if b'"_metadata"' in head and b"flashinfer_version" in head:
                    yield Item(folder.tree, (file,))

    def parse(self, item: Item, context: Context) -> Iterator[Draft | Skipped]:
        """Make one draft of one file; keys are parsed as literals and never evaluated.

        Raises:
            SourceFormatError: The content is not of this format.
        """
        del context
        if _is_constructed(item):
            yield Skipped(item.path, _CONSTRUCTED)
            return
        body, raw = tuned.read_config(item)
        meta = raw.get("_metadata")
        if not isinstance(meta, dict) or not isinstance(meta.get("gpu"), str):
            raise SourceFormatError("_metadata: expected an object with gpu")
        operations = [_tuple_name(key) for key in raw if key != "_metadata"]
        fallbacks = sum(_tactic(key, value) == -1 for key, value in raw.items() if key != "_metadata")
        if not operations:
            raise SourceFormatError("expected at least one operation")
        found = [kernels.meaning_of(name) for name in operations]
        applies_to = tuple(dict.fromkeys(one for operator, more in found for one in ((operator or ""), *more) if one))
        toolchain = {
            name.removesuffix("_version"): str(meta[name])
            for name in ("flashinfer_version", "cuda_version", "cublas_version", "cudnn_version")
            if isinstance(meta.get(name), str | int)
        }
        recipe = Recipe(
            project="FlashInfer",
            kernel="FlashInfer runners and tactics",
            topic=applies_to[0] if applies_to else "flashinfer",
            what="autotuner cache",
            variant="autotuner",
            key=[("flashinfer", toolchain.get("flashinfer", "unknown"))],
            device=devices.device_name(meta["gpu"]),
            applies_to=applies_to,
            toolchain=toolchain,
            rows=tuple(operations),
            lookup="Keys are operation, runner and shapes.",
            notes=(
                f"{fallbacks} of {len(operations)} entries are the fallback (tactic -1).",
                "Tactic numbers mean nothing in another version of FlashInfer, cuBLAS or cuDNN.",
            ),
            tags=("flashinfer", "autotune", *dict.fromkeys(name.replace("_", "-") for name in operations)),
        )
        yield tuned.config_draft(item, recipe, body=body, values=tuned.values_of(raw))


def _tuple_name(key: str) -> str:
    if len(key) > 4000:
        raise SourceFormatError("expected keys of at most 4,000 characters")
    try:
        value = ast.literal_eval(key)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError) as error:
        raise SourceFormatError(f"expected the text of a tuple as a key, found {key[:60]!r}") from error
    if not (isinstance(value, tuple) and value and isinstance(value[0], str)):
        raise SourceFormatError(f"expected a tuple that begins with a name, found {key[:60]!r}")
    return value[0][:60]


def _tactic(key: str, value: object) -> object:
    if not (isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)):
        raise SourceFormatError(f"{key[:60]}: expected [runner, tactic]")
    return value[1]


class TunableOp:
    """PyTorch's TunableOp: the fastest library solution of each GEMM."""

    name = "tunableop"
    summary = "PyTorch's TunableOp results: CSV that begins with Validator rows"

    def discover(self, folder: Folder) -> Iterable[Item]:
        """Claim CSV files that begin with a validator."""
        for file in folder.files:
            if file.name.endswith(".csv") and folder.tree.head(file.path, 10) == b"Validator,":
                yield Item(folder.tree, (file,))

    def parse(self, item: Item, context: Context) -> Iterator[Draft | Skipped]:
        """Make one draft of one file.

        Raises:
            SourceFormatError: The content is not of this format, or no device is known.
        """
        body = item.tree.read(item.path, limit=tuned.MAX_CONFIG_BYTES // 2)
        validators, solutions = _tunable_content(text_of(body))
        gcn = validators.get("GCN_ARCH_NAME", "").split(":", 1)[0]
        device = devices.device_name(context.device) if context.device else gcn
        if not device:
            raise SourceFormatError(_NEEDS_DEVICE)
        if gcn and devices.arch_of(device) not in (gcn, None):
            raise SourceFormatError(f"the file was made on {gcn}, and {device} is none")
        toolchain = {
            name.removesuffix("_VERSION").lower(): text
            for name, text in validators.items()
            if name.endswith("_VERSION")
        }
        recipe = Recipe(
            project="PyTorch",
            kernel="TunableOp GEMM solutions",
            topic="gemm",
            what="TunableOp",
            variant="tunableop",
            key=[("torch", toolchain.get("pt", "unknown"))],
            device=device,
            operator="gemm",
            dtypes=tuple(dict.fromkeys(one for row in solutions for one in devices.dtypes_of(_tunable_dtype(row[0])))),
            toolchain={("torch" if name == "pt" else name): text for name, text in toolchain.items()},
            rows=tuple(row[1] for row in solutions),
            lookup="PyTorch takes a file only if all validators agree.",
            notes=("Solution numbers mean nothing in another version of the library.",),
            tags=("tunableop", "hipblaslt", "rocblas", "gemm"),
            arch=gcn or None,
            timed=context.device is not None,
        )
        parsed = {"validators": validators, "solutions": [list(row) for row in solutions]}
        plain = (json.dumps(parsed, indent=2) + "\n").encode("utf-8")
        json_of(plain)
        draft = tuned.config_draft(item, recipe, body=body)
        facts = dict(draft.facts)
        if context.device is not None:
            facts["claims"] = _tunable_claims(solutions, device, draft)
        yield replace(draft, facts=facts, files={"config.json": plain, "tunableop.csv": body})


def _tunable_dtype(operation: str) -> str:
    found = re.search(r"_(float8_e4m3fnuz|float8_e4m3fn|bfloat16|half|float|double)", operation.lower())
    return {"double": "float64"}.get(found.group(1), found.group(1)) if found else ""


def _tunable_content(text: str) -> tuple[dict[str, str], list[tuple[str, str, str, float]]]:
    validators: dict[str, str] = {}
    solutions: dict[tuple[str, str], tuple[str, str, str, float]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        cells = line.split(",")
        if cells[0] == "Validator" and len(cells) == 3 and cells[1] not in validators:
            validators[cells[1][:60]] = cells[2][:80]
        elif len(cells) >= 3 and re.fullmatch(r"\w+TunableOp\w+", cells[0]) and re.fullmatch(r"\w+", cells[1]):
            key = (cells[0], cells[1])
            if key in solutions:
                raise SourceFormatError(f"line {number}: {cells[0]} at {cells[1]} stands there twice")
            solutions[key] = (*key, cells[2][:80], _milliseconds(cells[3] if len(cells) > 3 else "0", number))
        elif line.strip():
            raise SourceFormatError(f"line {number}: expected Validator,NAME,VALUE or OPERATION,SIZES,SOLUTION,MS")
    if not solutions:
        raise SourceFormatError("expected at least one solution")
    return validators, list(solutions.values())


def _milliseconds(text: str, number: int) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise SourceFormatError(f"line {number}: expected a time in ms, found {text[:40]!r}") from error
    if not math.isfinite(value) or not 0 <= value < _LONGEST_MS:
        raise SourceFormatError(f"line {number}: expected a time of 0 to an hour in ms, found {text[:40]}")
    return value


def _tunable_claims(
    solutions: Sequence[tuple[str, str, str, float]], device: str, draft: Draft
) -> list[dict[str, Any]]:
    timed = [row for row in solutions if row[3] > 0]
    step = max(1, len(timed) // 12)
    return [_claim(ms * 1000, device, f"{op} {sizes}", found, draft) for op, sizes, found, ms in timed[::step][:12]]


IMPORTERS = (TritonCache(), FlashInferCache(), TunableOp())
