"""What all drafts of FlashInfer Trace share: plain JSON, plain text, one topic."""

import json
from collections.abc import Mapping
from typing import Any

from kb.importers.base import Draft, Provenance

TOPIC = "flashinfer_trace"


def dump(value: object) -> bytes:
    """Return JSON as an entry holds it: two spaces, ASCII, a final newline; the order of keys is the source's."""
    return (json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False) + "\n").encode("ascii")


def plain(text: str, most: int) -> str:
    """Return a text in one line of at most ``most`` printable characters."""
    cleaned = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return cleaned if len(cleaned) <= most else cleaned[: most - 1] + "…"


def draft_of(
    name: str,
    facts: Mapping[str, Any],
    readme: str,
    files: Mapping[str, bytes],
    where: Provenance,
    license_: str | None,
    *,
    values: str | None = None,
    device: str | None = None,
) -> Draft:
    """Make a draft; the arguments are the fields of :class:`kb.importers.base.Draft`."""
    return Draft(name, facts, readme, files, where, license_, values=values, device=device)
