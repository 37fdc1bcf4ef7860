"""The format of a record: one validation of one entry version on one device; written by the judge, never edited."""

import hashlib
import json
from typing import Any, Literal

from pydantic import Field

from kb.models.claims import Strict

SCHEMA = 1


class EntryMade(Strict):
    """What was judged."""

    id: str
    version: int = Field(ge=1)
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    entry_point: str
    source_sha256: dict[str, str]
    """File name to sha256 of its bytes, as they were handed to the worker."""
    language: str


class OperatorUsed(Strict):
    """What it was judged against."""

    name: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Of the spec's own files."""


class JudgeUsed(Strict):
    """Who judged."""

    key: str = Field(pattern=r"^[0-9a-f]{16}$")
    revision: int = Field(ge=1)
    """``JUDGE_REVISION``; staleness follows it."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Of the runtime's files, for audit."""


class CaseMade(Strict):
    """One judged call."""

    axes: dict[str, int]
    dtype: str
    law: str
    contents: str
    verdict: str
    max_normalised: float | None
    detail: str


class Decision(Strict):
    """What was decided, and by which rule."""

    verdict: Literal["accepted", "rejected", "needs_review"]
    reasons: list[str]
    details: list[str]
    rule: int = Field(ge=1)


class Record(Strict):
    """All of a record. Figures that were not measured are None."""

    schema_: Literal[1] = Field(alias="schema")
    created_utc: str
    """ISO 8601, seconds, Z."""
    prev: str | None
    """sha256 of the record that this key signed before; None for its first."""
    entry: EntryMade
    operator: OperatorUsed
    judge: JudgeUsed
    master_seed: str
    """Hexadecimal; revealed after the run."""
    plan_sha256: str
    device: dict[str, Any]
    """``name``, ``arch`` and what the judge read of the hardware."""
    software: dict[str, str]
    sandbox: dict[str, Any]
    blocked: list[str]
    cases: list[CaseMade]
    findings: list[dict[str, Any]]
    delegates: list[str]
    ghosts: dict[str, Any]
    timing: dict[str, Any] | None
    memory: dict[str, Any] | None
    telemetry: dict[str, Any] | None
    roofline: dict[str, Any] | None
    samples_sha256: str | None
    """Digest of the side file with all samples; None if nothing was timed."""
    decision: Decision
    replay: str
    """The command that judges this again."""
    signature: str
    """base64, Ed25519, over the canonical form of all other fields."""


def canonical(record: dict[str, Any]) -> bytes:
    """Return the bytes that are hashed and signed: sorted keys, no blanks, ASCII; the signature left out."""
    signed = {name: value for name, value in record.items() if name != "signature"}
    return json.dumps(signed, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def written(record: dict[str, Any]) -> bytes:
    """Return the bytes of the file: sorted keys, two spaces, final newline."""
    return (json.dumps(record, sort_keys=True, indent=2, ensure_ascii=True, allow_nan=False) + "\n").encode("ascii")


def record_id(record: dict[str, Any]) -> str:
    """Return the sha256 of a record, its signature included: what the next record names."""
    return hashlib.sha256(canonical(record) + b"\0" + str(record["signature"]).encode("ascii")).hexdigest()


def decided(record: "Record") -> str:
    """Recompute the verdict from the record alone.

    Returns:
        ``accepted`` only if every case passed within its bound and no reason stands; ``rejected`` if a case failed;
        otherwise what the reasons say.
    """
    failed = [c for c in record.cases if c.verdict != "passed" or c.max_normalised is None or c.max_normalised > 1]
    if failed or not record.cases:
        return "rejected"
    return record.decision.verdict if record.decision.reasons else "accepted"
