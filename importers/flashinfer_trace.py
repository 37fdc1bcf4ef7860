"""FlashInfer Trace: definitions and solutions, both ways; program text lies in files of its own, never inside JSON."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kb.errors import SourceFormatError
from kb.importers.base import Context, Draft, Exported, Filed, Folder, Item, Skipped, provenance_of
from kb.importers.license import of_file
from kb.importers.naming import slug, unsafe_path
from kb.importers.reading import object_of

_DEFINITION = (re.compile(rb'"axes"\s*:'), re.compile(rb'"op_type"\s*:'))
_SOLUTION = (re.compile(rb'"definition"\s*:\s*"'), re.compile(rb'"(spec|sources)"\s*:'))
_TEXTS = ("reference", "init", "check")
"""Fields of a definition that hold programs."""
_TOPIC = "flashinfer_trace"
_HEAD = 16_384
_MOST_SOURCES = 150


def _dump(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False) + "\n").encode("ascii")


def _text(value: Mapping[str, Any], key: str) -> str:
    found = value.get(key)
    if not isinstance(found, str) or not found:
        raise SourceFormatError(f"field {key}: expected a text, found {type(found).__name__}")
    return found


def _check_definition(body: Mapping[str, Any]) -> None:
    axes = body.get("axes")
    if not isinstance(axes, dict):
        raise SourceFormatError("field axes: expected an object")
    for name, axis in axes.items():
        if not isinstance(axis, dict) or axis.get("type") not in ("const", "var", "expr"):
            raise SourceFormatError(f"field axes.{name[:60]}: expected the type const, var or expr")
    for side in ("inputs", "outputs"):
        tensors = body.get(side)
        if not isinstance(tensors, dict):
            raise SourceFormatError(f"field {side}: expected an object")
        for name, tensor in tensors.items():
            shape = tensor.get("shape") if isinstance(tensor, dict) else 0
            if shape is not None and not isinstance(shape, list):
                raise SourceFormatError(f"field {side}.{name[:60]}.shape: expected a list of axes or null")


def _plain(text: str, most: int) -> str:
    cleaned = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return cleaned if len(cleaned) <= most else cleaned[: most - 1] + "…"


def _definition(item: Item, raw: bytes) -> Draft:
    body = object_of(raw)
    name = _text(body, "name")
    _check_definition(body)
    files = {f"{field}.py": body.pop(field).encode() for field in _TEXTS if isinstance(body.get(field), str)}
    files["definition.json"] = _dump(body)
    said = _plain(str(body.get("description") or f"Definition {name} of a FlashInfer Trace data set"), 150)
    facts = {
        "title": _plain(f"Definition {name}", 80),
        "summary": said if len(said) >= 10 else f"Definition {name}",
        "outcome": "works",
        "tags": ["definition", "flashinfer-trace", "unverified"],
    }
    readme = f"# Definition {_plain(name, 200)}\n\n{said}\n\nWhat is to be computed, as published; no figure.\n"
    return _draft(item, raw, slug("definition", name), facts, readme, files)


def _solution(item: Item, raw: bytes) -> Draft:
    body = object_of(raw)
    name, definition = _text(body, "name"), _text(body, "definition")
    sources = body.get("sources")
    if not isinstance(sources, list) or not 0 < len(sources) <= _MOST_SOURCES:
        raise SourceFormatError(f"field sources: expected 1 to {_MOST_SOURCES} files")
    files: dict[str, bytes] = {}
    kept = []
    for number, source in enumerate(sources):
        if not isinstance(source, dict):
            raise SourceFormatError(f"field sources[{number}]: expected an object")
        path, content = _text(source, "path"), _text(source, "content")
        fault = unsafe_path(path)
        if fault is not None:
            raise SourceFormatError(f"field sources[{number}].path: {fault}")
        suffix = next((one for one in (".py", ".cu", ".cuh", ".cpp", ".h", ".hpp") if path.endswith(one)), ".txt")
        file = f"source_{number}{suffix}"  # a stranger's name may be none that every system can have
        files[file] = content.encode()
        kept.append({**{key: value for key, value in source.items() if key != "content"}, "file": file})
    files["solution.json"] = _dump({**body, "sources": kept})
    facts = {
        "title": _plain(f"Solution {name}", 80),
        "summary": _plain(f"An unverified solution of {definition}, as published", 160),
        "outcome": "works",
        "tags": ["solution", "flashinfer-trace", "unverified"],
    }
    readme = f"# Solution {_plain(name, 200)}\n\nUnverified code for {_plain(definition, 200)}, as published.\n"
    return _draft(item, raw, slug("solution", name), facts, readme, files)


def _draft(
    item: Item, raw: bytes, name: str, facts: Mapping[str, Any], readme: str, files: Mapping[str, bytes]
) -> Draft:
    stated = of_file(item.tree, item.path, raw)
    where = provenance_of(item.files[0], item.tree, raw)
    return Draft(f"technique/{_TOPIC}/{name}", facts, readme, files, where, stated)


class FlashInferTrace:
    """Definitions and solutions of FlashInfer Trace data sets, told by their content."""

    name = "flashinfer-trace"
    summary = "FlashInfer Trace: definitions and solutions"

    def discover(self, folder: Folder) -> Iterable[Item]:
        """Claim JSON files whose first bytes have the fields of a definition or a solution."""
        for file in folder.files:
            if not file.name.endswith(".json"):
                continue
            head = folder.tree.head(file.path, _HEAD)
            for kind, fields in (("definition", _DEFINITION), ("solution", _SOLUTION)):
                if all(field.search(head) for field in fields):
                    yield Item(folder.tree, (file,), extra={"kind": kind})
                    break

    def parse(self, item: Item, context: Context) -> Iterator[Draft | Skipped]:
        """Make one draft of a file.

        Raises:
            SourceFormatError: It is truncated, hostile or lacks a field.
        """
        del context
        raw = item.tree.read(item.path)
        yield _definition(item, raw) if item.extra["kind"] == "definition" else _solution(item, raw)

    def can_export(self, entry: Filed) -> bool:
        """Tell whether an entry came from a definition or a solution."""
        return "definition.json" in entry.files or "solution.json" in entry.files

    def export(self, entries: Iterable[Filed]) -> Iterator[Exported | Skipped]:
        """Put program text back and write the layout that readers of the format walk."""
        for entry in entries:
            if not self.can_export(entry):
                yield Skipped(entry.id, "neither a definition nor a solution of a FlashInfer Trace data set")
                continue
            try:
                yield _written(entry)
            except (KeyError, TypeError, SourceFormatError) as error:
                yield Skipped(entry.id, f"its JSON does not hold together: {error}")


def _written(entry: Filed) -> Exported:
    name = entry.id.rsplit("/", 1)[-1]
    if "definition.json" in entry.files:
        body = object_of(entry.files["definition.json"])
        texts = {field: entry.files[f"{field}.py"].decode() for field in _TEXTS if f"{field}.py" in entry.files}
        return Exported(f"definitions/{slug(body.get('op_type', 'other'))}/{name}.json", _dump({**body, **texts}))
    body = object_of(entry.files["solution.json"])
    sources = []
    for source in body["sources"]:
        rest = {key: value for key, value in source.items() if key != "file"}
        sources.append({**rest, "content": entry.files[source["file"]].decode()})
    return Exported(f"solutions/imported/{name}.json", _dump({**body, "sources": sources}))


IMPORTER = FlashInferTrace()
