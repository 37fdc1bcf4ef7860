"""Our own kernels as an initial population for OpenEvolve: programs of a checkpoint, with what is proven of them.

A program's metrics are figures of the judge's records and nothing else. A kernel without a record has none, and its
metadata says so: what somebody published is no fitness.
"""

import uuid
from collections.abc import Container, Iterator, Mapping
from typing import Any

from kb.config import Root
from kb.importers.base import Exported, Filed, Skipped
from kb.importers.carried import with_notice
from kb.importers.flashinfer_entries import dump
from kb.importers.openevolve import INITIAL, OURS
from kb.models.vocabulary import EVIDENCE
from kb.store import layout

FOLDER = OURS
"""With the operator's name: give it to OpenEvolve as ``--checkpoint``; its folder ``initial`` has the code as files."""
_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
_MEASURED = EVIDENCE.index("measured")


def program_id(entry: str, version: int) -> str:
    """Return the id that an entry's program always has."""
    return str(uuid.uuid5(_NAMESPACE, f"{entry}@{version}"))


class Population:
    """One export of our kernels as programs."""

    def __init__(self, root: Root, standing: Mapping[str, Mapping[str, Any]]) -> None:
        """Take what stands for the entries: id to a row of ``kb list`` with figures; none where that was not asked."""
        del root
        self._standing = standing

    @staticmethod
    def holds(entry: Filed) -> bool:
        """Tell whether an entry has code that is called through a function."""
        return entry.id.split("/", 1)[0] in ("kernel", "allocation", "comm") and bool(entry.facts.get("entry_point"))

    def written(self, entry: Filed, made: Container[str]) -> Iterator[Exported | Skipped]:
        """Write one entry as a program.

        Args:
            entry: One that :meth:`holds` lets pass.
            made: Paths that are written already.
        """
        del made
        file = str(entry.facts["entry_point"]).partition(":")[0]
        others = sorted(name for name in entry.files if layout.is_candidate(name) and name != file)
        if others:
            yield Skipped(entry.id, f"a program is one file; this entry runs {file} with {', '.join(others)[:120]}")
            return
        code = entry.files[file].decode()
        name = program_id(entry.id, entry.version)
        row = self._standing.get(entry.id, {})
        level = str(row.get("evidence", "documented"))
        folder = f"{FOLDER}_{entry.facts.get('operator') or 'other'}"
        body = {**_program(entry, code, level, row), "parent_id": self._parent(entry)}
        yield Exported(f"{folder}/programs/{name}.json", dump(body), entry.id)
        suffix = file.rpartition(".")[2]
        noticed = with_notice(code, str(entry.facts.get("license")), suffix)
        yield Exported(f"{folder}/{INITIAL}/{entry.id.replace('/', '-')}.{suffix}", noticed.encode(), entry.id)

    def _parent(self, entry: Filed) -> str | None:
        """Return the program of the entry that this one came from, if it is of this population."""
        for one in entry.facts.get("lineage", ()):
            row = self._standing.get(one["parent"])
            if row is not None and row.get("operator") == entry.facts.get("operator"):
                return program_id(row["id"], row["version"])
        return None


def _program(entry: Filed, code: str, level: str, row: Mapping[str, Any]) -> dict[str, Any]:
    facts = entry.facts
    return {
        "id": program_id(entry.id, entry.version),
        "code": code,
        "changes_description": f"{facts['title']}. {facts['summary']}",
        "language": "python",
        "parent_id": None,
        "generation": 0,
        "timestamp": 0.0,
        "iteration_found": 0,
        "metrics": _metrics(level, row.get("best")),
        "complexity": float(len(code)),
        "diversity": 0.0,
        "metadata": {
            "kb_entry": entry.id,
            "kb_version": entry.version,
            "kb_evidence": level,
            "kb_operator": facts.get("operator"),
            "license": facts.get("license"),
        },
        "prompts": None,
        "artifacts_json": None,
        "artifact_dir": None,
        "embedding": None,
    }


def _metrics(level: str, best: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the judge's own figures: the speed-up over the named baseline is the fitness."""
    if level not in EVIDENCE or EVIDENCE.index(level) < _MEASURED or not best:
        return {}
    if not best.get("speedup") or not best.get("regime"):  # a published figure has no regime
        return {}
    found = {"combined_score": float(best["speedup"]), "speedup": float(best["speedup"])}
    if best.get("metric") == "latency_us":
        found["latency_us"] = float(best["value"])
    return found
