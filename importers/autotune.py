"""Tuned parameters by kernel folder or range: LightLLM, AITER, Helion, and SGLang's Helion and plan files.

Source:
    LightLLM at 87881ae, AITER as huggingface/kernels-community carries it, vLLM 0.33.0, SGLang 0.5.23.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kb.errors import SourceFormatError
from kb.importers import devices, kernels, tuned
from kb.importers.base import Context, Draft, Folder, Item, Skipped
from kb.importers.descriptions import line_of
from kb.importers.naming import topic
from kb.importers.reading import json_of
from kb.importers.tuned import Recipe, check_parameter

_LIGHT = re.compile(r"\{(?P<key>[^{}]*)\}_(?P<device>[^/]+)\.json")
_LIGHT_KERNEL = re.compile(r"(?P<kernel>\w+)(?::v(?P<revision>\d+))?")
_TRITON = re.compile(r"triton_(\d+\.\d+\.\d+)")
_AITER = re.compile(r"(?:(?P<arch>gfx[0-9a-f]{3,4})-)?(?P<rest>[A-Z0-9_]+(?:-[\w=.]+)*)\.json")
_RANGE = re.compile(
    r"M_(LEQ|GEQ)_[1-9][0-9]{0,9}|any|small_M|medium_M|large_M|x?small|medium|x?large|[NM][1-9][0-9]{0,9}"
)
_HELION_NAME = re.compile(r"(?:nvidia|amd|intel)_[a-z0-9_]+\.json")
_WHOLE = re.compile(r"[0-9]{1,9}")


def _axes(fields: Mapping[str, object]) -> dict[str, int]:
    return {name: int(str(text)) for name, text in fields.items() if _WHOLE.fullmatch(str(text))}


class LightLLM:
    """LightLLM's autotuner: ``<kernel>[:vN]/{key}_<device>.json``."""

    name = "lightllm-autotune"
    summary = "LightLLM's autotuned parameters: KERNEL:vN/{key=value,…}_DEVICE.json"

    def discover(self, folder: Folder) -> Iterable[Item]:
        """Claim files by the form of their names."""
        for file in folder.files:
            if _LIGHT.fullmatch(file.name):
                yield Item(folder.tree, (file,))

    def parse(self, item: Item, context: Context) -> Iterator[Draft | Skipped]:
        """Make one draft of one file.

        Raises:
            SourceFormatError: The name or the content is not of this format.
        """
        del context
        path = item.tree.origin_of(item.path).path
        named = _LIGHT.fullmatch(item.files[0].name)
        kernel = _LIGHT_KERNEL.fullmatch(path.rpartition("/")[0].rpartition("/")[2])
        if named is None or kernel is None:
            raise SourceFormatError("expected KERNEL[:vN]/{key=value,…}_DEVICE.json")
        fields = _fields(named["key"])
        body, raw = tuned.read_config(item)
        rows = tuple(_nested(raw))
        device = devices.device_name(named["device"])
        triton = _TRITON.search(path)
        dtype = next((text for key, text in fields.items() if key.endswith("dtype") and "ids" not in key), "")
        name = kernel["kernel"].lstrip("_")
        revision = f"v{kernel['revision']}" if kernel["revision"] else ""
        operator, applies_to = kernels.meaning_of(name)
        recipe = Recipe(
            project="LightLLM",
            kernel=f"LightLLM {name} {revision}".strip(),
            topic=topic(operator or next(iter(applies_to), name)),
            what=f"{name} {revision}".strip(),
            variant=f"{name} {revision}",
            key=[(key, text.removeprefix("torch.")) for key, text in fields.items()],
            device=device,
            axes=_axes(fields),
            operator=operator,
            applies_to=applies_to,
            dtypes=devices.dtypes_of(dtype, devices.arch_of(device)) if dtype else (),
            toolchain={"triton": triton.group(1)} if triton else {},
            rows=rows,
            lookup="Keys are the run-time sizes (usually the number of tokens), in no order.",
            notes=(
                "The revision of the kernel is part of its identity: parameters of another revision do not fit."
                if revision
                else "The name carries no revision of the kernel.",
                *(() if triton else ("No Triton version is stated.",)),
                *tuned.untuned([key for key, value in raw.items() if value is None]),
            ),
            tags=(name.replace("_", "-"), "autotune"),
            api=(name,),
        )
        yield tuned.config_draft(item, recipe, body=body, values=tuned.values_of(raw))


_COMMA = re.compile(r",(?![^\[\]]*\])")
"""Not one inside brackets: ``block_size=[128,128]`` is one field."""


def _fields(key: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for part in _COMMA.split(key) if key else ():
        name, equals, text = part.partition("=")
        if not equals or not re.fullmatch(r"\w{1,60}", name) or name in fields or len(text) > 80:
            raise SourceFormatError(f"expected distinct key=value in the name, found {part[:60]!r}")
        fields[name] = text
    return fields


def _nested(raw: Mapping[str, Any], place: str = "", depth: int = 0) -> Iterator[str]:
    """Check nested run-time keys down to the parameters and yield their paths."""
    if not raw:
        raise SourceFormatError(f"{place or 'the file'}: expected parameters, found an empty object")
    inner = [isinstance(value, dict) for value in raw.values() if value is not None]
    if inner and all(inner) and depth < 4:
        for key, value in raw.items():
            if not re.fullmatch(r"[\w.,=\-]{1,160}", key):
                raise SourceFormatError(f"expected run-time sizes as keys, found {key[:60]!r}")
            if value is not None:  # null: the tuner found nothing for it
                yield from _nested(value, f"{place}/{key}".lstrip("/"), depth + 1)
        return
    if any(inner) or depth == 0:
        raise SourceFormatError(f"{place or 'the file'}: expected parameters by run-time key, found both mixed")
    for name, value in raw.items():
        check_parameter(f"{place}.{name[:60]}", value)
    yield place


class Aiter:
    """AITER's Triton configurations: ranges of M, or cases that a kernel tells apart, by architecture."""

    name = "aiter"
    summary = "AITER's tuned parameters by range of M or by case: gfx942-GEMM-A16W16-N=…-K=….json"

    def discover(self, folder: Folder) -> Iterable[Item]:
        """Claim files by their names, which begin with an architecture or lie below a folder of one."""
        for file in folder.files:
            found = _AITER.fullmatch(file.name)
            if found is not None and (found["arch"] or _folder_arch(folder, file.path)):
                yield Item(folder.tree, (file,))

    def parse(self, item: Item, context: Context) -> Iterator[Draft | Skipped]:
        """Make one draft of one file.

        Raises:
            SourceFormatError: The name or the content is not of this format.
        """
        del context
        found = _AITER.fullmatch(item.files[0].name)
        arch = (found["arch"] if found else None) or _arch_in(item.tree.origin_of(item.path).path)
        if found is None or arch is None:
            raise SourceFormatError("expected an architecture such as gfx942 in the name or the folder")
        words, fields = _aiter_name(found["rest"])
        if words == ["DEFAULT"]:  # of the kernel that the folder is called by
            words = [item.tree.origin_of(item.path).path.rpartition("/")[0].rpartition("/")[2].upper(), *words]
        body, raw = tuned.read_config(item)
        remark = raw.get("_note")
        if remark is not None and not (isinstance(remark, str) and len(remark) <= 2000):
            raise SourceFormatError("_note: expected a text")
        rows = tuple(_nested({key: value for key, value in raw.items() if key != "_note"}))
        ranges = [key for key in raw if _RANGE.fullmatch(key)]
        kernel = "-".join(words)
        precision = next((word for word in words if devices.dtypes_of(word.split("_")[0].lower())), "")
        operator, applies_to = kernels.meaning_of("_".join(words))
        spelled = precision.lower() if devices.dtypes_of(precision.lower()) else precision.split("_")[0].lower()
        recipe = Recipe(
            project="AITER",
            kernel=f"AITER {kernel} (Triton)",
            topic=topic(operator or next(iter(applies_to), words[0])),
            what=kernel.lower(),
            variant=kernel,
            key=list(fields.items()),
            device=arch,
            axes={name.lower(): int(text) for name, text in fields.items() if _WHOLE.fullmatch(text)},
            operator=operator,
            applies_to=applies_to,
            dtypes=devices.dtypes_of(spelled, arch) if spelled else (),
            rows=rows,
            lookup="Keys are ranges, not points: M_LEQ_64 holds up to 64 rows, `any` for what no range covers."
            if ranges
            else "Keys name cases that the kernel's code tells apart.",
            notes=(
                *((f"Its authors say: {line_of(remark, 300)}",) if remark else ()),
                f"Tuned by architecture, not product: {arch} stands for devices whose numbers of compute units differ.",
                "The file does not say with which Triton it was tuned.",
            ),
            tags=("aiter", "amd", *(word.lower() for word in words)),
            arch=arch,
        )
        yield tuned.config_draft(item, recipe, body=body, values=tuned.values_of(raw))


def _folder_arch(folder: Folder, path: str) -> str | None:
    return _arch_in(folder.tree.origin_of(path).path)


def _arch_in(path: str) -> str | None:
    found = re.search(r"(?:^|/)(gfx[0-9a-f]{3,4})/", path)
    return found.group(1) if found else None


def _aiter_name(rest: str) -> tuple[list[str], dict[str, str]]:
    words: list[str] = []
    fields: dict[str, str] = {}
    for part in rest.split("-"):
        name, equals, text = part.partition("=")
        if not equals:
            words.append(part)
        elif name in fields:
            raise SourceFormatError(f"{name} stands in the name twice")
        else:
            fields[name] = text
    return words, fields


class Helion:
    """vLLM's Helion kernels: a list of shape keys and configurations."""

    name = "vllm-helion"
    summary = "vLLM's Helion configurations: OPERATOR/nvidia_h100.json, a list of {key, config}"

    def discover(self, folder: Folder) -> Iterable[Item]:
        """Claim files whose names are a device and whose first character opens a list."""
        for file in folder.files:
            if _HELION_NAME.fullmatch(file.name) and folder.tree.head(file.path, 64).lstrip()[:1] == b"[":
                yield Item(folder.tree, (file,))

    def parse(self, item: Item, context: Context) -> Iterator[Draft | Skipped]:
        """Make one draft of one file.

        Raises:
            SourceFormatError: The content is not of this format.
        """
        del context
        body = item.tree.read(item.path, limit=tuned.MAX_CONFIG_BYTES)
        raw = json_of(body, depth=14)
        keys = [_helion_row(row) for row in raw] if isinstance(raw, list) else []
        if not keys or len(set(keys)) != len(keys):
            raise SourceFormatError("expected a list of distinct keys with their configurations")
        kernel = item.tree.origin_of(item.path).path.rpartition("/")[0].rpartition("/")[2] or "helion"
        device = devices.device_name(item.files[0].name.removesuffix(".json"))
        vendor, _, product = device.partition(" ")
        device = f"{vendor.upper()} {product.upper()}"
        operator, applies_to = kernels.meaning_of(kernel)
        recipe = Recipe(
            project="vLLM",
            kernel=f"vLLM {kernel} (Helion)",
            topic=topic(operator or next(iter(applies_to), kernel)),
            what=f"Helion {kernel}",
            variant=f"helion {kernel}",
            key=[],
            device=device,
            operator=operator,
            applies_to=applies_to,
            dtypes=devices.dtypes_of("fp8", devices.arch_of(device)) if "fp8" in kernel or "quant" in kernel else (),
            rows=tuple(keys),
            lookup="One configuration for each combination of sizes.",
            notes=("The lists' lengths depend on the kernel's source: without the same version they mean nothing.",),
            tags=("helion", kernel.replace("_", "-")),
            api=(kernel,),
        )
        yield tuned.config_draft(item, recipe, body=body, values=tuned.values_of(raw))


def _helion_row(row: object) -> str:
    if not isinstance(row, dict) or set(row) != {"key", "config"}:
        raise SourceFormatError("expected rows with key and config")
    key, config = row["key"], row["config"]
    if not isinstance(key, dict) or not isinstance(config, dict) or not config:
        raise SourceFormatError("expected objects as key and config")
    for name, value in key.items():
        check_parameter(name[:60], value)
    return " ".join(f"{name}={value}" for name, value in sorted(key.items()))


class SglangFiles:
    """SGLang's Helion texts and its plans for LoRA."""

    name = "sglang-other"
    summary = "SGLang's Helion configurations as text (…_sm_95.json) and its plans for LoRA (sm100.plans.json)"

    def discover(self, folder: Folder) -> Iterable[Item]:
        """Claim files by their names."""
        for file in folder.files:
            if re.fullmatch(r"\w+_sm_\d{2,3}\.json|sm\d{2,3}\.plans\.json", file.name):
                yield Item(folder.tree, (file,))

    def parse(self, item: Item, context: Context) -> Iterator[Draft | Skipped]:
        """Make one draft of one file; the Python text in it stays text and is never evaluated.

        Raises:
            SourceFormatError: The content is not of this format.
        """
        del context
        body, raw = tuned.read_config(item)
        stem = item.files[0].name.removesuffix(".json")
        plans = stem.endswith(".plans")
        dense = plans and "rows" in raw
        wanted = ("rows",) if dense else ("scenarios", "domain") if plans else ("useful_configs", "hash_configs")
        if not all(isinstance(raw.get(name), dict | list) and raw[name] for name in wanted):
            raise SourceFormatError(f"expected {' and '.join(wanted)}")
        kernel, number = (
            (f"{'dense' if dense else 'moe'}_lora_plans", stem.removesuffix(".plans")[2:])
            if plans
            else stem.rsplit("_sm_", 1)
        )
        rows = [str(one.get("name")) for one in raw[wanted[0]]] if plans else [str(key) for key in raw["hash_configs"]]
        operator, applies_to = kernels.meaning_of(kernel)
        recipe = Recipe(
            project="SGLang",
            kernel=f"SGLang {kernel} ({'Triton' if plans else 'Helion'})",
            topic=topic(operator or next(iter(applies_to), kernel)),
            what=kernel,
            variant=kernel,
            key=[("sm", number)],
            device=f"sm_{number}",
            operator=operator,
            applies_to=applies_to,
            rows=rows,
            lookup="Plans are chosen by phase and layout." if plans else "Keys are shapes, as a Python tuple's text.",
            notes=("By architecture, not product.",)
            if plans
            else ("Configurations are Python source in strings: text to read, never to run.",),
            tags=("helion" if not plans else "lora", kernel.replace("_", "-")),
            arch=f"sm_{number}",
        )
        yield tuned.config_draft(item, recipe, body=body, values=tuned.values_of(raw))


IMPORTERS = (LightLLM(), Aiter(), Helion(), SglangFiles())
