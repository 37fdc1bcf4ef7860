"""The format of a record: one validation of one entry version on one device; written by the judge, never edited."""

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from kb.models.claims import Strict
from kb.models.measured import (
    Determinism,
    Essential,
    Kernels,
    Memory,
    Sha256,
    Telemetry,
    Timing,
    device_facts,
)

SCHEMA = 1
UTC_SECONDS = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"


class EntryMade(Strict):
    """What was judged."""

    id: str
    version: int = Field(ge=1)
    digest: Sha256
    entry_point: str
    source_sha256: dict[str, Sha256]
    """File name to sha256 of its bytes, as they were handed to the worker."""
    language: str


class OperatorUsed(Strict):
    """What it was judged against."""

    name: str
    family: Literal["values", "allocation", "comm", "model"]
    """Which oracle judged; the verdict follows from the cases in each of them."""
    sha256: Sha256
    """Of the spec's own files."""


class JudgeUsed(Strict):
    """Who judged."""

    key: str = Field(pattern=r"^[0-9a-f]{16}$")
    revision: int = Field(ge=1)
    """``JUDGE_REVISION``; staleness follows it."""
    sha256: Sha256
    """Of the runtime's files, for audit."""


class PlanMade(Strict):
    """What the plan was drawn from, besides the seed: enough to draw it again."""

    uses: list[Literal["awkward", "target"]]
    """Which of the operator's workloads, of those that the entry's dtypes and limits admit."""
    calls: Annotated[list[int], Field(min_length=2, max_length=2)]
    """Least and most calls of one workload."""


class CaseMade(Strict):
    """One judged call."""

    axes: dict[str, int]
    dtype: str
    law: str
    contents: str
    verdict: str
    max_normalised: float | None = Field(ge=0)
    """Worst error over its bound; None where there is no number, or in families without a bound."""
    detail: str


class Decision(Strict):
    """What was decided, and by which rule."""

    verdict: Literal["accepted", "rejected", "needs_review"]
    reasons: list[str]
    details: list[str]
    rule: int = Field(ge=1)


class Bundled(Strict):
    """How a record came here that was made on another machine."""

    job: str = Field(pattern=r"^[0-9a-f]{16}$")
    """Id of the bundle; its key authenticated the evidence, once."""
    accepted_utc: str = Field(pattern=UTC_SECONDS)
    """When it was checked and signed."""
    sha256: Sha256
    """Of the evidence that was accepted, in canonical form."""


class Record(Strict):
    """All of a record. Figures that were not measured are None."""

    schema_: Literal[1] = Field(alias="schema")
    created_utc: str = Field(pattern=UTC_SECONDS)
    """When judging began; ISO 8601, seconds, Z."""
    prev: str | None
    """sha256 of the record that this key signed before; None for its first."""
    entry: EntryMade
    operator: OperatorUsed
    judge: JudgeUsed
    bundle: Bundled | None
    master_seed: str = Field(pattern=r"^([0-9a-f]{32})?$")
    """Hexadecimal; revealed after the run."""
    plan: PlanMade
    plan_sha256: str
    device: Annotated[dict[str, Any], AfterValidator(device_facts)]
    """A ``Device`` of :mod:`kb.models.measured`: what the judge read of the hardware."""
    software: dict[str, str]
    """Name to version of what the candidate was built with."""
    environment: dict[str, str]
    """Environment variables that can change what ran."""
    sandbox: dict[str, Any]
    blocked: list[str]
    cases: list[CaseMade]
    findings: list[dict[str, Any]]
    delegates: list[str]
    ghosts: dict[str, Any]
    kernels: Kernels | None
    determinism: list[Determinism] | None
    sanitizer: dict[str, Any] | None
    """Tool of the device to what it found; small shapes, in runs of their own."""
    timing: list[Timing] | None
    timing_notes: list[str]
    """What was not timed, and why."""
    memory: Memory | None
    comm: dict[str, Any] | None = None
    """Of a communication scheme: transport, ranks, precision on the wire, and what was moved for every workload."""
    model: dict[str, Any] | None
    """Of a whole model: which original judged, its noise, the budget of the declared format, limits and distances."""
    telemetry: Telemetry | None
    """At its worst over all blocks: lowest clocks, most power and heat, every reason for throttling."""
    roofline: list[Essential] | None
    samples_sha256: Sha256 | None
    """Digest of the side file with all samples; None if nothing was timed."""
    seconds: dict[str, float]
    """How long judging took, by step."""
    output: str
    """Tail of what the candidate printed, escaped."""
    decision: Decision
    replay: str
    """The command that judges this again."""
    signature: str
    """base64, Ed25519, over the canonical form of all other fields."""

    @property
    def signed_utc(self) -> str:
        """When it was signed: at the end of judging, or where it came in a bundle, when that was accepted."""
        return self.created_utc if self.bundle is None else self.bundle.accepted_utc


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
    if not record.cases or any(_failed(case, record.operator.family) for case in record.cases):
        return "rejected"
    if not record.decision.reasons:
        return "accepted"
    return "rejected" if record.decision.verdict == "accepted" else record.decision.verdict


def _failed(case: CaseMade, family: str) -> bool:
    """Tell whether a case speaks against the candidate; where values are compared, a missing error is a failure."""
    if case.verdict != "passed":
        return True
    return case.max_normalised > 1 if case.max_normalised is not None else family == "values"
