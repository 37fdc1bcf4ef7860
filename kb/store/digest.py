"""The entry digest: what changes when that which runs changes, and never otherwise."""

import hashlib
import json
from collections.abc import Mapping

from kb.models.entry import EntryFile

_RUN_FACTS = (
    "operator",
    "language",
    "entry_point",
    "dtypes",
    "requires",
    "limits",
    "contracts",
    "tuned",
    "uses",
    "target",
)
"""Facts that change what runs or what it is for. Title, summary, tags, prose, claims, lineage and records do not."""

_SETS = frozenset({"dtypes", "arch", "features", "provides", "conflicts", "requires", "uses", "in"})
"""Lists in which order means nothing."""


def _pruned(value: object, name: str = "") -> object:
    """Drop what says nothing, so that an absent field and an empty one are the same and new fields change no digest."""
    if isinstance(value, dict):
        kept = {key: _pruned(inner, key) for key, inner in value.items()}
        return {key: inner for key, inner in kept.items() if inner is not None and inner not in ([], {})}
    if isinstance(value, list):
        items = [_pruned(inner) for inner in value]
        return sorted(items, key=repr) if name in _SETS else items
    return value


def _frame(*parts: bytes) -> bytes:
    """Join parts so that no two sequences of parts give the same bytes: each is preceded by its length."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def entry_digest(facts: EntryFile, candidate: Mapping[str, bytes]) -> str:
    """Return the digest of one entry version.

    Args:
        facts: All of ``entry.toml``; only the facts that change what runs are used.
        candidate: Name relative to the entry's folder → bytes, of the files that run.

    Returns:
        64 hexadecimal digits of sha256.
    """
    chosen = facts.model_dump(mode="json", by_alias=True, include=set(_RUN_FACTS))
    canonical = json.dumps(_pruned(chosen), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    state = hashlib.sha256(_frame(b"kb-entry-digest-1", canonical.encode("ascii"), str(len(candidate)).encode()))
    for name in sorted(candidate):
        state.update(_frame(name.encode("utf-8"), candidate[name]))
    return state.hexdigest()
