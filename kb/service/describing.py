"""Find the target that somebody describes in words."""

import sqlite3

from kb.errors import EntryNotFoundError, RetrievalError
from kb.retrieval import browse
from kb.service.resident import Resident
from kb.service.searching import Filters

_CLEARLY = 1.15
"""How many times the score of the second target the first one needs to be meant."""


def target_named(resident: Resident, words: str) -> str:
    """Return the id of the target that is meant.

    Args:
        resident: The knowledge base.
        words: An id, a slug that only one entry has, or a description: model, precision, device.

    Raises:
        EntryNotFoundError: Nothing fits, or several targets fit about equally well; the hint names them.
    """
    asked = words.strip()

    def known(connection: sqlite3.Connection) -> str:
        return str(browse.raw(connection, asked)["id"])

    try:
        return resident.ask(known)
    except EntryNotFoundError:
        if asked.startswith("target/"):
            raise
    try:
        hits = resident.search(asked, filters=Filters(kind="target"), limit=4).hits
    except RetrievalError as error:
        raise EntryNotFoundError(f"no target is described by {asked[:80]!r}", hint=error.hint) from error
    if not hits:
        hint = "search with kind = target lists them; kb target new makes one"
        raise EntryNotFoundError(f"no target is described by {asked[:80]!r}", hint=hint)
    if len(hits) > 1 and hits[0].score < _CLEARLY * hits[1].score:
        named = ", ".join(hit.id for hit in hits)
        raise EntryNotFoundError(f"{asked[:80]!r} describes several targets", hint=f"give the id of one: {named}")
    return hits[0].id
