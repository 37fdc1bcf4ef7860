"""FlashInfer Trace and its SOL-ExecBench dialect, both ways: definitions, solutions, workloads, traces and blobs.

Program text lies in files of its own, never inside JSON. What the loader of flashinfer-bench takes is written where it
looks; what it would refuse goes beside, because one such file stops it from loading all others.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kb.errors import SourceFormatError
from kb.importers import flashinfer_results
from kb.importers.base import Context, Draft, Exported, Filed, Folder, Item, Skipped, provenance_of
from kb.importers.carried import stated_in
from kb.importers.flashinfer_blobs import SIDECAR
from kb.importers.flashinfer_entries import TOPIC, draft_of, dump, plain
from kb.importers.flashinfer_rows import rows_drafts
from kb.importers.flashinfer_schema import DEPTH, check_definition, is_dialect, original, text_of_field
from kb.importers.flashinfer_writing import DIALECT, Writing
from kb.importers.kernels import meaning_of
from kb.importers.license import of_file
from kb.importers.naming import slug, unsafe_path
from kb.importers.reading import object_of
from kb.importers.tree import SourceFile

_KINDS: tuple[tuple[str, tuple[bytes, ...], bytes | None], ...] = (
    ("summary", (rb'"solution_name"\s*:', rb'"runs"\s*:\s*\[', rb'"definition"\s*:'), None),
    ("results", (rb'"results"\s*:\s*\{', rb'"(latency_ms|status)"\s*:'), None),
    ("definition", (rb'"axes"\s*:', rb'"(inputs|reference)"\s*:', rb'"name"\s*:'), rb'"uuid"\s*:'),
    ("solution", (rb'"definition"\s*:\s*"', rb'"(spec|sources)"\s*:'), None),
    ("registry", (rb'"schema_version"\s*:', rb'"(op|name)"\s*:\s*"', rb'"(workloads|cases)"\s*:\s*\['), None),
)
"""Kind, fields that its first bytes must have, and one that they must not."""
_ROWS = re.compile(rb'"workload"\s*:\s*\{')
_BARE = re.compile(rb'"uuid"\s*:\s*".*"axes"\s*:\s*\{|"axes"\s*:\s*\{.*"uuid"\s*:', re.DOTALL)
_TEXTS = ("reference", "init", "check")
"""Fields of a definition that hold programs."""
_HEAD = 16_384
_LONGEST_NAME = 400
_MOST_SOURCES = 150


def _definition(item: Item, raw: bytes) -> Draft:
    body = object_of(raw, depth=DEPTH)
    name = text_of_field(body, "name")
    check_definition(body)
    dialect = is_dialect(body)
    files: dict[str, bytes] = {}
    license_ = stated_in(body.get("tags"), [body.get("description"), body.get("reference")])
    for field in _TEXTS:
        if isinstance(body.get(field), str):
            text = original(body.pop(field)) if field == "reference" else body.pop(field)
            if text is not None:
                files[f"{field}.py"] = text.encode()
    files["definition.json"] = dump(body)
    said = plain(str(body.get("description") or f"Definition {name} of a FlashInfer Trace data set"), 150)
    operator, relatives = meaning_of(name)
    about = [operator] if operator else list(relatives)
    facts = {
        "title": plain(f"Definition {name}", 80),
        "summary": said if len(said) >= 10 else f"Definition {name}",
        "outcome": "works",
        "tags": ["definition", "flashinfer-trace", *(["sol-execbench"] if dialect else []), "unverified"],
        **({"applies_to": about} if about else {}),
    }
    readme = f"# Definition {plain(name, 200)}\n\n{said}\n\nWhat is to be computed, as published; no figure.\n"
    return _draft(item, raw, slug("definition", name), facts, readme, files, license_)


def _solution(item: Item, raw: bytes) -> Draft:
    body = object_of(raw, depth=DEPTH)
    name, definition = text_of_field(body, "name"), text_of_field(body, "definition")
    sources = body.get("sources")
    if not isinstance(sources, list) or not 0 < len(sources) <= _MOST_SOURCES:
        raise SourceFormatError(f"field sources: expected 1 to {_MOST_SOURCES} files")
    files: dict[str, bytes] = {}
    kept = []
    for number, source in enumerate(sources):
        if not isinstance(source, dict):
            raise SourceFormatError(f"field sources[{number}]: expected an object")
        path, content = text_of_field(source, "path"), source.get("content")
        fault = unsafe_path(path)
        if fault is not None or not isinstance(content, str):
            raise SourceFormatError(f"field sources[{number}]: {fault or 'expected a content that is text'}")
        suffix = path.rsplit("/", 1)[-1].rpartition(".")[2].lower()
        kind = suffix if suffix in ("py", "cu", "cuh", "cpp", "cc", "c", "h", "hpp") else "txt"
        files[f"source_{number}.{kind}"] = content.encode()
        kept.append(
            {**{key: value for key, value in source.items() if key != "content"}, "file": f"source_{number}.{kind}"}
        )
    files["solution.json"] = dump({**body, "sources": kept})
    license_ = stated_in(None, [body.get("description"), *(source["content"] for source in sources)])
    facts = {
        "title": plain(f"Solution {name}", 80),
        "summary": plain(f"An unverified solution of {definition}, as published", 160),
        "outcome": "works",
        "tags": ["solution", "flashinfer-trace", *(["sol-execbench"] if is_dialect(body) else []), "unverified"],
    }
    readme = f"# Solution {plain(name, 200)}\n\nUnverified code for {plain(definition, 200)}, as published.\n"
    return _draft(item, raw, slug("solution", name), facts, readme, files, license_)


def _draft(
    item: Item,
    raw: bytes,
    name: str,
    facts: Mapping[str, Any],
    readme: str,
    files: Mapping[str, bytes],
    license_: str | None,
) -> Draft:
    stated = license_ or of_file(item.tree, item.path, raw)
    where = provenance_of(item.files[0], item.tree, raw)
    return draft_of(f"technique/{TOPIC}/{name}", facts, readme, files, where, stated)


def _kind(head: bytes) -> str | None:
    for kind, wanted, unwanted in _KINDS:
        if all(re.search(one, head) for one in wanted) and (unwanted is None or not re.search(unwanted, head)):
            return kind
    return None


def _named_beside(folder: Folder) -> str | None:
    """Return the name of the definition that bare workloads are of; None if nothing says it."""
    file = next((one for one in folder.files if one.name == "definition.json"), None)
    if file is None:
        return folder.name if f"/{folder.path}".rpartition("/")[0].endswith(f"/{DIALECT}") else None
    try:
        name = object_of(folder.tree.read(file.path), depth=DEPTH).get("name")
    except SourceFormatError:
        return None
    return name if isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME else None


class FlashInferTrace:
    """FlashInfer Trace data sets, told by their content."""

    name = "flashinfer-trace"
    summary = "FlashInfer Trace: definitions, solutions, workloads, traces, blobs; SOL-ExecBench; contest results"

    def discover(self, folder: Folder) -> Iterable[Item]:
        """Claim JSON and JSON lines whose first bytes have the fields of one of the kinds, and safetensors."""
        named = {file.name: file for file in folder.files}
        for file in folder.files:
            if file.name.endswith(SIDECAR):
                if file.name.removesuffix(SIDECAR) + ".jsonl" not in named:
                    yield Item(folder.tree, (file,), extra={"kind": "sidecar"})
            elif file.name.endswith(".json"):
                kind = _kind(folder.tree.head(file.path, _HEAD))
                if kind is not None:
                    yield Item(folder.tree, (file,), extra={"kind": kind})
            elif file.name.endswith(".jsonl"):
                yield from self._rows(folder, file, named)
            elif file.name.endswith(".safetensors"):
                yield Item(folder.tree, (file,), extra={"kind": "blob"})

    @staticmethod
    def _rows(folder: Folder, file: SourceFile, named: Mapping[str, SourceFile]) -> Iterator[Item]:
        head = folder.tree.head(file.path, _HEAD)
        beside = named.get(file.name.removesuffix(".jsonl") + SIDECAR)
        files = (file, beside) if beside is not None else (file,)
        if _ROWS.search(head):
            yield Item(folder.tree, files, extra={"kind": "rows"})
        elif _BARE.search(head.split(b"\n", 1)[0]):
            name = _named_beside(folder)
            yield Item(folder.tree, files, extra={"kind": "rows", **({"definition": name} if name else {})})

    def parse(self, item: Item, context: Context) -> Iterator[Draft | Skipped]:
        """Make the drafts of a file: one, or for rows one for each definition, solution and device.

        Raises:
            SourceFormatError: It is truncated, hostile or lacks a field.
        """
        kind = item.extra["kind"]
        if kind == "blob":
            yield Skipped(item.path, "tensors: taken with the workloads that name them", refused=False)
        elif kind == "sidecar":
            yield Skipped(item.path, "digests of blobs whose workloads do not lie beside it", refused=False)
        elif kind == "rows":
            yield from rows_drafts(item, context)
        elif kind in flashinfer_results.PARSERS:
            yield from flashinfer_results.PARSERS[kind](item, context)
        else:
            raw = item.tree.read(item.path)
            yield _definition(item, raw) if kind == "definition" else _solution(item, raw)

    def can_export(self, entry: Filed) -> bool:
        """Tell whether an entry came from this format."""
        return Writing.holds(entry)

    def export(self, entries: Iterable[Filed]) -> Iterator[Exported | Skipped]:
        """Put program text back and write the layout that readers of the format walk.

        What the loader of flashinfer-bench would refuse is written into folders that it does not look into, and noted.
        """
        writing = Writing()
        for entry in entries:
            if not writing.holds(entry):
                yield Skipped(entry.id, "nothing of a FlashInfer Trace data set")
                continue
            try:
                yield from writing.written(entry)
            except (KeyError, TypeError, AttributeError, UnicodeDecodeError, SourceFormatError) as error:
                yield Skipped(entry.id, f"its JSON does not hold together: {error}")


IMPORTER = FlashInferTrace()
