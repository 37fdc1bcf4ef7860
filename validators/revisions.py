"""The judge's revisions, each pinned to the digest of its code, so that no change of the runtime goes unnamed.

``python -m kb.validators.revisions`` tells whether the code is what its revision was pinned to; ``--pin`` writes the
pin of a new revision. A changed runtime has to raise ``JUDGE_REVISION`` and name a class in ``REVISIONS``: evidence
then turns stale as far as the class says, and no farther.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from kb.validators.runtime import fingerprint

PINS = Path(__file__).parent / "revisions.json"
"""Revision to the sha256 of the runtime's files."""

CLASSES = ("neutral", "timing", "values")
"""What goes stale by a revision: nothing; times; everything."""


def fault(pins: Path = PINS, *, runtime: Path | None = None) -> str | None:
    """Say what is wrong between code, revision and pins, and what to do; None if nothing is.

    Args:
        pins: The file of pins.
        runtime: Folder of the runtime; the installed one if None.
    """
    revision, named = fingerprint.JUDGE_REVISION, fingerprint.REVISIONS
    if sorted(named) != list(range(1, revision + 1)) or any(kind not in CLASSES for kind in named.values()):
        return f"REVISIONS has to name a class of {', '.join(CLASSES)} for each revision from 1 to {revision}"
    known = _read(pins)
    digest = _digest(runtime)
    if str(revision) not in known:
        return f"revision {revision} has no pin: python -m kb.validators.revisions --pin"
    if known[str(revision)] != digest:
        return (
            f"the runtime is not that of revision {revision}: raise JUDGE_REVISION to {revision + 1} in "
            "validators/runtime/fingerprint.py, say in REVISIONS what goes stale by it (neutral, timing or values), "
            "then python -m kb.validators.revisions --pin"
        )
    return None


def pin(pins: Path = PINS, *, runtime: Path | None = None, again: bool = False) -> str:
    """Pin the revision that the code claims to be.

    Args:
        pins: The file of pins.
        runtime: Folder of the runtime; the installed one if None.
        again: Replace the pin of a revision by which no record was made yet.

    Returns:
        The digest.

    Raises:
        ValueError: The revision is pinned to other code already.
    """
    known, digest, revision = _read(pins), _digest(runtime), str(fingerprint.JUDGE_REVISION)
    if known.get(revision, digest) != digest and not again:
        raise ValueError(
            f"revision {revision} is pinned to other code: raise JUDGE_REVISION, or --again if no record was made by it"
        )
    pins.write_text(json.dumps(known | {revision: digest}, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return digest


def _digest(runtime: Path | None) -> str:
    folder = runtime or Path(fingerprint.__file__).parent
    return fingerprint.digest_of(folder, folder.rglob("*.py"))


def _read(pins: Path) -> dict[str, Any]:
    known: dict[str, Any] = json.loads(pins.read_text(encoding="utf-8")) if pins.is_file() else {}
    return known


def main() -> int:
    """Check, or pin; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m kb.validators.revisions", description=__doc__)
    parser.add_argument("--pin", action="store_true", help="pin the revision that the code claims to be")
    parser.add_argument("--again", action="store_true", help="also over a pin by which no record was made yet")
    asked = parser.parse_args()
    if asked.pin:
        try:
            digest = pin(again=asked.again)
        except ValueError as error:
            sys.stderr.write(f"{error}\n")
            return 1
        sys.stdout.write(f"revision {fingerprint.JUDGE_REVISION}: {digest}\n")
        return 0
    found = fault()
    sys.stdout.write(f"{found or f'revision {fingerprint.JUDGE_REVISION} is what it was pinned to'}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
