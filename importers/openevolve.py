"""OpenEvolve's checkpoints, both ways: programs with their metrics and parents, and where each lived.

A metric is what a run's own evaluator said of a program: nobody can tell its unit, its device or whether it was
cheated. It is kept with the program; a figure is claimed only where the user states the device: ``reported`` then.

Source:
    openevolve 0.4.1, ``ProgramDatabase.save`` and ``load``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from kb.errors import SourceFormatError
from kb.importers import devices
from kb.importers.base import Context, Draft, Exported, Filed, Folder, Item, Skipped, provenance_of, values_digest
from kb.importers.carried import stated_in
from kb.importers.flashinfer_entries import dump, plain
from kb.importers.flashinfer_schema import text_of_field
from kb.importers.license import of_file, spdx
from kb.importers.naming import slug, windows_fault
from kb.importers.reading import object_of
from kb.importers.tree import Tree

TOPIC = "openevolve"
PROGRAMS = "programs"
INITIAL = "initial"
"""Folder of an export of ours in which each program lies once more, as a file of its own."""
OURS = "kb_population"
"""How the folder of such an export begins."""
_HEAD = 4096
_DEPTH = 12
_MOST_BYTES = 4 << 20
_MOST_CODE = 1 << 20
_MOST_METADATA = 1_000_000
"""Of an entry's file; a checkpoint's lists of ids alone can be larger."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_\-]{0,99}")
_SUFFIXES = {"python": "py", "cuda": "cu", "cpp": "cpp", "c++": "cpp", "c": "c", "hip": "hip"}
_SCORE = "combined_score"
"""OpenEvolve's own name for the one number that a program is ranked by."""
_INFO = re.compile(r"best_program(_info\.json|\.\w{1,5})")


def _is_checkpoint(tree: Tree, folder: str) -> bool:
    head = tree.head(f"{folder}/metadata.json" if folder else "metadata.json", _HEAD)
    return b'"island_feature_maps"' in head or b'"islands"' in head


class OpenEvolve:
    """Checkpoints of OpenEvolve."""

    name = "openevolve"
    summary = "OpenEvolve: checkpoints (programs, metrics, parents, islands)"

    def discover(self, folder: Folder) -> Iterable[Item]:
        """Claim the files of a checkpoint's folder, and those of the folder ``programs`` in it."""
        if folder.name == PROGRAMS:
            for file in folder.files:
                head = folder.tree.head(file.path, _HEAD).lstrip() if file.name.endswith(".json") else b""
                if head.startswith(b"{") and b'"id"' in head and (b'"code"' in head or b'"metrics"' in head):
                    yield Item(folder.tree, (file,), extra={"kind": "program"})
        elif folder.name == INITIAL and f"/{folder.path}".rpartition("/")[0].rpartition("/")[2].startswith(OURS):
            for file in folder.files:
                yield Item(folder.tree, (file,), extra={"kind": "best"})
        elif _is_checkpoint(folder.tree, folder.path):
            for file in folder.files:
                if file.name == "metadata.json":
                    yield Item(folder.tree, (file,), extra={"kind": "checkpoint"})
                elif _INFO.fullmatch(file.name):
                    yield Item(folder.tree, (file,), extra={"kind": "best"})

    def parse(self, item: Item, context: Context) -> Iterator[Draft | Skipped]:
        """Make a draft of a program, or of what a checkpoint says of all of them.

        Raises:
            SourceFormatError: It is truncated, hostile or lacks a field.
        """
        if item.extra["kind"] == "best":
            yield Skipped(item.path, "repeats a program of the checkpoint", refused=False)
        elif item.extra["kind"] == "program":
            yield _program(item, context)
        else:
            yield _checkpoint(item)

    def can_export(self, entry: Filed) -> bool:
        """Tell whether an entry came from a checkpoint."""
        return entry.id.startswith(f"technique/{TOPIC}/") and (
            "program.json" in entry.files or "checkpoint.json" in entry.files
        )

    def export(self, entries: Iterable[Filed]) -> Iterator[Exported | Skipped]:
        """Write checkpoints as OpenEvolve loads them, each program in the checkpoint that it came from."""
        for entry in entries:
            if not self.can_export(entry):
                yield Skipped(entry.id, "neither a program nor a checkpoint of OpenEvolve")
                continue
            try:
                yield _written(entry)
            except (KeyError, TypeError, AttributeError, UnicodeDecodeError, SourceFormatError) as error:
                yield Skipped(entry.id, f"its JSON does not hold together: {error}")


def _checked(raw: bytes, name: str) -> dict[str, Any]:
    """Return a program's fields, checked.

    Raises:
        SourceFormatError: It is none.
    """
    body = object_of(raw, limit=_MOST_BYTES, depth=_DEPTH)
    found = text_of_field(body, "id", 100)
    if not _ID.fullmatch(found) or found != name:
        raise SourceFormatError(f"field id: expected the name of the file, found {found[:60]!a}")
    text_of_field(body, "code", _MOST_CODE)
    for field in ("generation", "iteration_found"):
        value = body.get(field, 0)
        if type(value) is not int or value < 0:
            raise SourceFormatError(f"field {field}: expected a number of 0 or more, found {value!r:.40}")
    parent = body.get("parent_id")
    if parent is not None and not (isinstance(parent, str) and _ID.fullmatch(parent)):
        raise SourceFormatError(f"field parent_id: expected the id of a program or null, found {parent!r:.60}")
    if parent == found:
        raise SourceFormatError("field parent_id: a program cannot be its own parent")
    metrics = body.get("metrics", {})
    if not isinstance(metrics, dict) or len(metrics) > 200:
        raise SourceFormatError("field metrics: expected an object of at most 200 numbers")
    for key, value in metrics.items():
        if not isinstance(value, int | float | str | None) or (isinstance(value, str) and len(value) > 4000):
            raise SourceFormatError(f"field metrics.{key[:60]}: expected a number, a text or null")
    return body


def _id_of(program: str) -> str:
    return f"technique/{TOPIC}/{slug('program', program)}"


@lru_cache(maxsize=1024)
def _is_here(tree: str, path: str) -> bool:
    """Tell whether a parent lies beside its child and would be taken, too."""
    from pathlib import Path

    from kb.importers.tree import Origin

    bare = Tree(Path(tree), Origin("", ""))
    try:
        _checked(bare.read(path, limit=_MOST_BYTES), path.rpartition("/")[2].removesuffix(".json"))
    except SourceFormatError:
        return False
    return True


def _program(item: Item, context: Context) -> Draft:
    file = item.files[0]
    raw = item.tree.read(file.path, limit=_MOST_BYTES)
    body = _checked(raw, file.name.removesuffix(".json"))
    code = body.pop("code")
    language = str(body.get("language", "python")).lower()
    where = provenance_of(file, item.tree, raw)
    metrics = body.get("metrics", {})
    parent = body.get("parent_id")
    score = metrics.get(_SCORE)
    said = f"its run's evaluator says {_SCORE} {score:.6g}" if isinstance(score, int | float) else "without a score"
    facts: dict[str, Any] = {
        "title": plain(f"OpenEvolve program {body['id']}", 80),
        "summary": plain(f"Generation {body.get('generation', 0)}, {said}; unverified", 160),
        "outcome": "works",
        "tags": ["openevolve", "program", "unverified"],
    }
    if parent is not None and _is_here(str(item.tree.root), f"{file.folder}/{parent}.json"):
        facts["lineage"] = [{"parent": _id_of(parent), "relation": "mutated"}]
    if context.device and isinstance(score, int | float) and not isinstance(score, bool) and score > 0:
        facts["claims"] = [
            {
                "metric": f"fitness {_SCORE}",
                "value": float(score),
                "unit": "score",
                "better": "higher",
                "device": devices.device_name(context.device)[:80],
                "workload": "as the run's evaluator chose",
                "backend": plain(f"program {body['id']}", 120),
                "source": plain(f"{where.repository} {where.path}", 300),
            }
        ]
    return Draft(
        _id_of(body["id"]),
        facts,
        _readme(body, parent, metrics),
        {f"program.{_SUFFIXES.get(language, 'txt')}": code.encode(), "program.json": dump(body)},
        where,
        _license_of(item, body, code),
        values=values_digest([code]),
    )


def _license_of(item: Item, body: Mapping[str, Any], code: str) -> str | None:
    """Return the license of a program: what its code says, what its metadata say, else what lies beside it."""
    metadata = body.get("metadata")
    stated = metadata.get("license") if isinstance(metadata, dict) else None
    named = spdx(stated) if isinstance(stated, str) else None
    return stated_in(None, [code]) or named or of_file(item.tree, item.path)


def _readme(body: Mapping[str, Any], parent: str | None, metrics: Mapping[str, Any]) -> str:
    shown = [f"- {plain(name, 60)}: {plain(str(value), 80)}" for name, value in list(metrics.items())[:20]]
    changes = body.get("changes_description")
    return "\n".join(
        [
            f"# OpenEvolve program {body['id']}",
            "",
            f"Generation {body.get('generation', 0)}, found at iteration {body.get('iteration_found', 0)}; "
            + (f"parent {parent}." if parent else "no parent."),
            *([f"Change: {plain(changes, 400)}"] if isinstance(changes, str) and changes else []),
            "Unverified code. The metrics are what the run's own evaluator said; their units are its own:",
            *(shown or ["- none"]),
            "",
        ]
    )


def _checkpoint(item: Item) -> Draft:
    raw = item.tree.read(item.path)
    body = object_of(raw, depth=_DEPTH)
    islands = body.get("islands", [])
    if not isinstance(islands, list) or not all(isinstance(one, list) for one in islands):
        raise SourceFormatError("field islands: expected a list of lists of ids")
    last = body.get("last_iteration", 0)
    if type(last) is not int or last < 0:
        raise SourceFormatError(f"field last_iteration: expected a number of 0 or more, found {last!r:.40}")
    made = dump(body)
    if len(made) > _MOST_METADATA:
        raise SourceFormatError(
            f"expected at most {_MOST_METADATA:,} bytes of lists, found {len(made):,}: its programs are imported, "
            "where they lived is not; --format openevolve on a checkpoint of fewer programs"
        )
    count = len({one for island in islands for one in island if isinstance(one, str)})
    where = provenance_of(item.files[0], item.tree, raw)
    place = where.path.split("/")[-2] if "/" in where.path else "checkpoint"
    facts = {
        "title": plain(f"OpenEvolve checkpoint at iteration {last}", 80),
        "summary": f"{count} programs on {len(islands)} islands; programs are entries of their own",
        "outcome": "works",
        "tags": ["openevolve", "checkpoint", "unverified"],
    }
    best = body.get("best_program_id")
    said = f"Best by its own evaluator: {plain(str(best), 100)}." if best else "It names no best program."
    readme = f"# OpenEvolve checkpoint at iteration {last}\n\n{count} programs, {len(islands)} islands. {said}\n"
    name = f"technique/{TOPIC}/{slug('checkpoint', where.repository, place)}"
    return Draft(name, facts, readme, {"checkpoint.json": made}, where, of_file(item.tree, item.path))


def _written(entry: Filed) -> Exported:
    parts = str(entry.facts.get("source", {}).get("path", "")).split("/")
    if "checkpoint.json" in entry.files:
        group = parts[-2] if len(parts) > 1 else "checkpoint"
        return Exported(f"{_plain_folder(group)}/metadata.json", entry.files["checkpoint.json"], entry.id)
    group = parts[-3] if len(parts) > 2 else "checkpoint"
    body = object_of(entry.files["program.json"])
    code = next(text for name, text in entry.files.items() if name.startswith("program.") and name != "program.json")
    whole = {"id": body["id"], "code": code.decode(), **body}
    if not _ID.fullmatch(str(body["id"])):
        raise SourceFormatError("its id is no file name")
    return Exported(f"{_plain_folder(group)}/{PROGRAMS}/{body['id']}.json", dump(whole), entry.id)


def _plain_folder(name: str) -> str:
    plain_name = re.fullmatch(r"[A-Za-z0-9][\w.\-]{0,80}", name) and windows_fault(name) is None
    return name if plain_name else slug(name)


IMPORTER = OpenEvolve()
