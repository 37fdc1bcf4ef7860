"""Describe operators, and find the target that somebody describes in words."""

import json
import sqlite3
import subprocess
import sys
from functools import lru_cache
from typing import Any

from kb.errors import EntryNotFoundError, RetrievalError, ValidatorError
from kb.retrieval import browse
from kb.service.judging_apart import check_operator, environment
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


_LONGEST_S = 180.0
_PROGRAM = "import json, sys; from kb.service.judging import describe_operator as d; print(json.dumps(d(sys.argv[1])))"


def operator_described(name: str) -> dict[str, Any]:
    """Describe one operator, in a process of its own: this one need not load torch for it.

    Args:
        name: Its name.

    Raises:
        UnknownOperatorError: No operator has this name.
        ValidatorError: It cannot be described here.
    """
    check_operator(name)
    described: dict[str, Any] = json.loads(_described(name))
    return described


@lru_cache(maxsize=128)
def _described(name: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - our own module; the name is one of ours
            [sys.executable, "-P", "-c", _PROGRAM, name],
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValidatorError(f"{name} cannot be described: {error}", hint=f"kb operators {name}") from error
    if done.returncode != 0:
        raise ValidatorError(f"{name} cannot be described here", hint="pip install 'kernel-kb[gpu]': it needs torch")
    return done.stdout
