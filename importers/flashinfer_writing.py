"""Write entries of FlashInfer Trace as files: what flashinfer-bench loads where it looks, all else beside it."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kb.errors import SourceFormatError
from kb.importers.base import Exported, Filed, Skipped, sha256
from kb.importers.flashinfer_blobs import exported_blobs, missing_blobs
from kb.importers.flashinfer_entries import dump
from kb.importers.flashinfer_schema import (
    LOADER,
    definition_fault,
    is_dialect,
    row_fault,
    runs,
    solution_fault,
    stand_in,
)
from kb.importers.naming import slug, windows_fault
from kb.importers.reading import json_of, object_of

BESIDE = "not_loadable"
"""Folder for what the loader would refuse; it walks definitions, solutions, workloads and traces only."""
DIALECT = "sol_execbench"
"""Folder for problems of SOL-ExecBench, one folder each, as its runner wants them."""
_TEXTS = ("reference", "init", "check")
_KINDS = ("definition.json", "solution.json", "workloads.json", "traces.json")
_AS_THEY_CAME = ("results.json", "summary.json", "shapes.json")


class Writing:
    """One export; it remembers names, because the loader refuses two definitions or solutions of one name."""

    def __init__(self) -> None:
        self._taken: set[tuple[str, str]] = set()
        self._written: dict[str, str] = {}

    @staticmethod
    def holds(entry: Filed) -> bool:
        """Tell whether an entry came from this format."""
        return any(name in entry.files for name in _KINDS) or (
            "flashinfer_trace/" in entry.id and any(name in entry.files for name in _AS_THEY_CAME)
        )

    def written(self, entry: Filed) -> Iterator[Exported | Skipped]:
        """Write one entry.

        Args:
            entry: One that :meth:`holds` lets pass.

        Raises:
            SourceFormatError: Its files do not hold together.
        """
        name = entry.id.rsplit("/", 1)[-1]
        if "definition.json" in entry.files:
            yield from self._definition(entry, name)
        elif "solution.json" in entry.files:
            yield from self._solution(entry, name)
        elif "workloads.json" in entry.files:
            yield from self._rows(entry, "workloads", name)
        elif "traces.json" in entry.files:
            yield from self._rows(entry, "traces", name)
        else:
            file = next(one for one in _AS_THEY_CAME if one in entry.files)
            yield Exported(f"{BESIDE}/{file.removesuffix('.json')}/{name}.json", entry.files[file], entry.id)

    def _twice(self, kind: str, name: object) -> str | None:
        key = (kind, str(name))
        if key in self._taken:
            return f"a second {kind} of the name {key[1][:80]}"
        self._taken.add(key)
        return None

    def _definition(self, entry: Filed, name: str) -> Iterator[Exported | Skipped]:
        body = object_of(entry.files["definition.json"])
        texts = {field: entry.files[f"{field}.py"].decode() for field in _TEXTS if f"{field}.py" in entry.files}
        op_type = slug(body.get("op_type") or "other")
        if is_dialect(body):
            fault = self._twice("problem", body["name"])
            if fault is None:
                yield Exported(
                    f"{problem_folder(str(body['name']))}/definition.json", dump({**body, **texts}), entry.id
                )
            else:
                yield from _placed(entry, f"definitions/{op_type}/{name}.json", dump({**body, **texts}), fault)
            return
        fault = definition_fault(body)
        if fault is None and not runs(texts.get("reference")):
            texts["reference"] = stand_in(texts.get("reference"))
            fault = None if runs(texts["reference"]) else "a reference that is no Python program"
        fault = fault or self._twice("definition", body["name"])
        yield from _placed(entry, f"definitions/{op_type}/{name}.json", dump({**body, **texts}), fault)

    def _solution(self, entry: Filed, name: str) -> Iterator[Exported | Skipped]:
        body = object_of(entry.files["solution.json"])
        sources = []
        for source in body["sources"]:
            rest = {key: value for key, value in source.items() if key != "file"}
            sources.append({**rest, "content": entry.files[source["file"]].decode()})
        whole = {**body, "sources": sources}
        if is_dialect(body):
            yield Exported(f"{problem_folder(str(body['definition']))}/{name}.json", dump(whole), entry.id)
            return
        fault = solution_fault(whole) or self._twice("solution", body["name"])
        yield from _placed(entry, f"solutions/imported/{name}.json", dump(whole), fault)

    def _rows(self, entry: Filed, kind: str, name: str) -> Iterator[Exported | Skipped]:
        rows = json_of(entry.files[f"{kind}.json"])
        if not isinstance(rows, list) or not rows or not all(isinstance(one, dict) for one in rows):
            raise SourceFormatError("expected a list of rows")
        definition = str(rows[0]["definition"])
        if kind == "workloads" and "sol-execbench" in entry.facts.get("tags", ()):
            yield from self._dialect_rows(entry, definition, rows, name)
            return
        fault = next((found for one in rows if (found := row_fault(one)) is not None), None)
        path = f"{kind}/{slug(definition)}/{name}.jsonl"
        yield from _placed(entry, path, _lines(rows), fault)
        yield from self._blobs(entry, path if fault is None else f"{BESIDE}/{path}")
        if fault is None:
            missing = tuple(missing_blobs(entry))
            if missing:
                yield Skipped(entry.id, f"written without {len(missing)} blobs that it does not hold", refused=False)

    def _dialect_rows(
        self, entry: Filed, definition: str, rows: list[Mapping[str, Any]], name: str
    ) -> Iterator[Exported | Skipped]:
        """Write bare workloads, as the dialect has them, where the folder's name tells whose they are."""
        folder = problem_folder(definition)
        file = "workload" if self._twice("workloads", definition) is None else name
        path = f"{folder}/{file}.jsonl"
        bare = folder == f"{DIALECT}/{definition}"
        yield Exported(path, _lines([one["workload"] for one in rows] if bare else rows), entry.id)
        yield from self._blobs(entry, path)

    def _blobs(self, entry: Filed, path: str) -> Iterator[Exported | Skipped]:
        for one in exported_blobs(entry, path):
            known = self._written.setdefault(one.path, sha256(one.body))
            if known == sha256(one.body):
                yield one
            else:
                yield Skipped(entry.id, f"written without {one.path}: another blob has this path", refused=False)


def _placed(entry: Filed, path: str, body: bytes, fault: str | None) -> Iterator[Exported | Skipped]:
    if fault is None:
        yield Exported(path, body, entry.id)
        return
    yield Exported(f"{BESIDE}/{path}", body, entry.id)
    yield Skipped(entry.id, f"written to {BESIDE}: {LOADER} refuses {fault}", refused=False)


def _lines(rows: list[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(one, ensure_ascii=True, allow_nan=False) + "\n" for one in rows).encode("ascii")


def problem_folder(definition: str) -> str:
    """Return the folder of a problem of the dialect: its definition's name where every system takes it."""
    plain = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,100}", definition) and windows_fault(definition) is None
    return f"{DIALECT}/{definition if plain else slug(definition)}"
