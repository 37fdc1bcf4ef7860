"""Accept evidence that a bundle wrote: check its seal and all that follows from it, then sign and file it here."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kb.config import Root, config_folder
from kb.errors import ConfigError, EntryFormatError, EvidenceRefusedError, ValidatorError
from kb.models.record import Record
from kb.service import jobs, soundness, validating
from kb.store import files, layout, records
from kb.validators import keys

_CLOCKS_APART = timedelta(days=1)
"""How far the clock of another machine may be from this one's."""

_AGAIN = "run the bundle again and accept the file as it was written"

Plain = Mapping[str, Any]


@dataclass(frozen=True)
class Accepted:
    """What came of one piece of evidence."""

    id: str
    version: int
    verdict: str
    reasons: tuple[str, ...]
    device: str
    record: str | None
    """Path of the record below ``entries/``; of the earlier one if it was accepted before."""
    note: str | None = None


@dataclass(frozen=True)
class _Checked:
    """One piece of evidence that may be signed."""

    raw: dict[str, Any]
    samples: bytes | None
    sha256: str
    job: str
    note: str | None


def accept(root: Root, paths: Sequence[Path]) -> Iterator[Accepted]:
    """Accept the evidence in some files; a file in which anything is wrong is refused as a whole.

    Args:
        root: The knowledge base, not the packaged starter.
        paths: Files that bundles of this user wrote.

    Yields:
        One result a piece of evidence; what was accepted before is told and changes nothing.

    Raises:
        ConfigError: The knowledge base cannot be written, or a file cannot be read.
        EvidenceRefusedError: A file was edited, is of no known job or too old, or does not hold together.
    """
    if root.packaged:
        raise ConfigError("the packaged starter entries are never written to", hint="kb --root DIR accept …")
    key = keys.own_key(config_folder())
    for path in paths:
        for one in _checked(root, path):
            with records.writing(root.entries):
                yield _file(root, one, key)


def _checked(root: Root, path: Path) -> list[_Checked]:
    """Check a whole file before anything of it is filed."""
    from kb.validators.runtime import sealing

    try:
        document = sealing.read(path)
    except sealing.SealError as error:
        raise EvidenceRefusedError(f"{path}: {error}", hint="give the file that the bundle wrote") from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="give the file that the bundle wrote") from error
    job = jobs.find(str(document["job"]))
    if not sealing.is_sealed(document, job.secret):
        raise EvidenceRefusedError(
            f"{path}: its seal is not its job's: it was edited after it was written", hint=_AGAIN
        )
    found = []
    for raw in document["evidence"]:
        try:
            found.append(_check(root, job, raw, document["samples"]))
        except EvidenceRefusedError as error:
            raise EvidenceRefusedError(f"{path}: {error.message}", hint=error.hint) from error
    return found


def _check(root: Root, job: jobs.Job, raw: Any, samples: Plain) -> _Checked:  # noqa: ANN401 - plain JSON
    from kb.validators.runtime import sealing, statistics

    if not isinstance(raw, dict) or not isinstance(raw.get("judge"), dict):
        raise EvidenceRefusedError("a piece of evidence is none", hint=_AGAIN)
    record = _record(raw)
    name = f"{record.entry.id}@{record.entry.version}"
    order = next((o for o in job.entries if (o.id, o.digest) == (record.entry.id, record.entry.digest)), None)
    if order is None:
        raise EvidenceRefusedError(f"{name}: not in the bundle of job {job.job}", hint=_AGAIN)
    held = None
    if record.samples_sha256 is not None and isinstance(samples.get(record.samples_sha256), dict):
        held = statistics.written(samples[record.samples_sha256])
        if hashlib.sha256(held).hexdigest() != record.samples_sha256:
            raise EvidenceRefusedError(f"{name}: its samples are not those that it names", hint=_AGAIN)
    faults = [
        *_order_faults(record, order, job),
        *_timed_faults(record, order),
        *_time_faults(record, job),
        *soundness.decision_faults(record),
        *_plan_faults(record, order),
        *soundness.timing_faults(record, held),
        *soundness.device_faults(record.device),
    ]
    if faults:
        raise EvidenceRefusedError(f"{name}: {faults[0]}", hint=_AGAIN)
    return _Checked(raw, held, hashlib.sha256(sealing.canonical(raw)).hexdigest(), job.job, _standing(root, record))


def _record(raw: dict[str, Any]) -> Record:
    """Read evidence as the record that it will be."""
    stand_in = {"prev": None, "bundle": None, "signature": "", "judge": {**raw["judge"], "key": "0" * 16}}
    try:
        return Record.model_validate(raw | stand_in)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise EvidenceRefusedError(f"a piece of evidence is no record: {place}: {first['msg']}", hint=_AGAIN) from error


def _order_faults(record: Record, order: jobs.Ordered, job: jobs.Job) -> Iterator[str]:
    """Hold evidence against what the bundle was made to do."""
    pairs = (
        ("version", record.entry.version, order.version),
        ("entry point", record.entry.entry_point, order.entry_point),
        ("language", record.entry.language, order.language),
        ("source", record.entry.source_sha256, order.source_sha256),
        ("operator", record.operator.name, order.operator),
        ("operator's digest", record.operator.sha256, order.operator_sha256),
        ("judge's revision", record.judge.revision, job.judge_revision),
        ("judge's digest", record.judge.sha256, job.judge_sha256),
        ("workloads", list(record.plan.uses), order.uses),
        ("number of calls", record.plan.calls, order.calls),
        ("kind of device", "cpu" if record.device["arch"] == "cpu" else "cuda", job.device_kind),
    )
    for what, made, asked in pairs:
        if made != asked:
            yield f"its {what} is not the one in the bundle"


def _timed_faults(record: Record, order: jobs.Ordered) -> Iterator[str]:
    """Hold what was timed, and against what, against what the bundle held."""
    asked = [(one["axes"], one["dtype"], one["law"]) for one in order.timed]
    for one in record.timing or ():
        if (one.workload.axes, one.workload.dtype, one.workload.law) not in asked:
            yield "it times a workload that was not asked for"
        if one.baseline is None or one.baseline.source_sha256 not in order.baselines:
            yield "it was timed against something that is not in the bundle"


def _time_faults(record: Record, job: jobs.Job) -> Iterator[str]:
    created = datetime.fromisoformat(record.created_utc)
    if created < datetime.fromisoformat(job.made_utc) - _CLOCKS_APART:
        yield f"it says that it was made on {record.created_utc[:10]}, before its bundle"
    if created > datetime.now(UTC) + _CLOCKS_APART:
        yield f"it says that it was made on {record.created_utc[:10]}, which is yet to come"


def _plan_faults(record: Record, order: jobs.Ordered) -> Iterator[str]:
    if record.operator.family not in ("values", "allocation") or not record.plan_sha256:
        return
    try:
        from kb.validators.operators.spec import Workload
    except ImportError as error:
        raise ValidatorError(f"plans need torch: {error}", hint="pip install 'kernel-kb[gpu]'") from error
    yield from soundness.plan_faults(record, [Workload(**one) for one in order.workloads])


def _standing(root: Root, record: Record) -> str | None:
    """Say whether the entry has gone on since the bundle was made, or None.

    Raises:
        EvidenceRefusedError: The entry is not here any more.
    """
    folder = layout.folder_of(root.entries, record.entry.id)
    if not folder.is_dir():
        raise EvidenceRefusedError(f"no entry {record.entry.id} here", hint="kb accept --root DIR, where it is")
    try:
        stored = files.read(folder, record.entry.id)
    except EntryFormatError as error:
        raise EvidenceRefusedError(error.message, hint=error.hint or "kb check") from error
    if stored.digest == record.entry.digest:
        return None
    return f"filed for version {record.entry.version}; the entry is at version {stored.file.version} now"


def _file(root: Root, one: _Checked, key: keys.JudgeKey) -> Accepted:
    """Sign and file one piece of evidence unless that was done before. The caller holds ``records.writing``."""
    entry = one.raw["entry"]
    decision = one.raw["decision"]
    device = str(one.raw["device"]["name"])
    for filed in records.read(root.entries, entry["id"]):
        if filed.record.bundle is not None and filed.record.bundle.sha256 == one.sha256:
            return Accepted(
                entry["id"], entry["version"], decision["verdict"], tuple(decision["reasons"]), device, filed.path,
                "accepted before",
            )  # fmt: skip
    if not one.raw["plan_sha256"]:
        return Accepted(
            entry["id"], entry["version"], decision["verdict"], tuple(decision["reasons"]), device, None,
            "it could not be loaded there: nothing is filed",
        )  # fmt: skip
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    bundle = {"job": one.job, "accepted_utc": now, "sha256": one.sha256}
    filed = validating.sign_and_file(root, one.raw, key, samples=one.samples, bundle=bundle)
    return Accepted(
        entry["id"], entry["version"], decision["verdict"], tuple(decision["reasons"]), device, filed.path, one.note
    )
