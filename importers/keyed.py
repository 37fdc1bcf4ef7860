"""Tuned parameters whose shape is in the file name: vLLM, SGLang and what follows their lead."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kb.errors import SourceFormatError
from kb.importers import devices, tuned
from kb.importers.base import Context, Draft, Exported, Filed, Folder, Item, Skipped, values_digest
from kb.importers.keyed_layout import runtime_files
from kb.importers.keyed_specs import BLOCK, SPECS, TRITON_FOLDER, Spec, triton_of
from kb.importers.naming import unsafe_path, windows_fault
from kb.importers.reading import object_of
from kb.importers.tree import SourceFile
from kb.importers.tuned import Key, Recipe, Table


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
        values = table.values
        if len(item.files) > 1:
            further["config_down.json"], down = tuned.read_config(item, 1)
            _table(spec, down)
            if values is not None:
                values = values_digest([values, tuned.values_of(down)])
        recipe = self._recipe(key, origin, precision, block, table)
        yield tuned.config_draft(item, recipe, body=body, values=values, further=further)

    def _recipe(self, key: Key, origin: str, precision: str, block: str, table: Table) -> Recipe:
        spec = self.spec
        device = devices.device_name(key.device or "")
        arch = devices.arch_of(device)
        triton = table.triton or triton_of(origin)
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
            notes=(*spec.notes, *tuned.untuned(table.empty), *self._warnings(key, device, dtype, triton)),
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
        """Write the files under the names and folders that the runtime looks for.

        What was imported is written byte for byte as it came; entries in our own layout are put into the runtime's.
        """
        for entry in entries:
            path = _path_of(entry, self.spec)
            if path is None or "config.json" not in entry.files:
                yield Skipped(entry.id, f"it is no {self.spec.name} file", refused=False)
                continue
            fault = unsafe_path(path)
            if fault is not None:
                yield Skipped(entry.id, f"its source path cannot be written: {fault}")
                continue
            try:
                files = runtime_files(entry.files)
                for body in files.values():
                    _table(self.spec, object_of(body, depth=8))
            except SourceFormatError as error:
                yield Skipped(entry.id, f"it cannot be written as {self.spec.name}: {error.message}")
                continue
            for suffix, body in files.items():
                yield Exported(f"{path.removesuffix('.json')}{suffix}.json", body, entry.id)


def _path_of(entry: Filed, spec: Spec) -> str | None:
    """Return the path to export to: the version's folder, if there is one, and the name, or None if it is not ours."""
    path = str(entry.facts.get("source", {}).get("path", ""))
    name = path.rpartition("/")[2]
    key = tuned.key_of(name)
    importer = KeyedImporter(spec)
    if key is None or not importer._fits(path, key) or windows_fault(name) is not None:
        return None
    parent = path.rpartition("/")[0].rpartition("/")[2]
    short = f"{parent}/{name}" if TRITON_FOLDER.fullmatch(parent) else name
    # Where the name alone does not tell whose file it is, a folder says it, or another project would claim it.
    return short if importer._fits(short, key) else f"{spec.project.lower()}/{short}"


def _kernel(spec: Spec, key: Key) -> str:
    if "backend" in key.fields:
        return f"{spec.project} fused_moe ({key.fields['backend']})"
    return " ".join([spec.kernel, *key.words, *((key.fields["provider"],) if "provider" in key.fields else ())])


def _second(key: Key) -> list[tuple[str, str]]:
    return [("gemm", "down")] if key.down else []


def _precision(key: Key) -> tuple[str, str]:
    block = key.fields.get("block_shape", "")
    found = BLOCK.fullmatch(block)
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
    return tuned.points_of(inner, words=spec.row_words)


IMPORTERS = tuple(KeyedImporter(spec) for spec in SPECS)
