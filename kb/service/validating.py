"""Validate entries: have them judged on a device, and file what came out as signed, chained records."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from kb.config import Root, config_folder
from kb.errors import ConfigError, DeviceUnavailableError, EntryNotFoundError, ValidatorError
from kb.models.record import canonical, record_id
from kb.service.judging import judge_entry
from kb.store import files, layout, records
from kb.store.files import StoredEntry
from kb.validators import keys


@dataclass(frozen=True)
class Validated:
    """What came of one entry."""

    id: str
    version: int
    verdict: str | None
    """None if it could not be judged here."""
    reasons: tuple[str, ...]
    record: str | None
    """Path of the record below ``entries/``."""
    note: str | None = None


def validate(
    root: Root,
    ids: Sequence[str],
    *,
    device: str = "cpu",
    progress: Callable[[str], None] | None = None,
) -> Iterator[Validated]:
    """Judge entries one after another; each record is filed before the next begins.

    Args:
        root: The knowledge base, not the packaged starter.
        ids: Entry ids; none means all kernel entries.
        device: ``cpu``.
        progress: Called with the id that is being judged.

    Yields:
        One result an entry; an entry that cannot be judged here says why and stops nothing.

    Raises:
        ConfigError: The knowledge base cannot be written.
        DeviceUnavailableError: The judge cannot use this device.
        EntryNotFoundError: An id is not in the knowledge base.
    """
    if root.packaged:
        raise ConfigError("the packaged starter entries are never written to", hint="kb init DIR; kb --root DIR …")
    if device != "cpu":
        raise DeviceUnavailableError(f"values are judged on the cpu, not on {device!r}", hint="leave --device out")
    known = list(layout.entry_ids(root.entries))
    missing = [one for one in ids if one not in known]
    if missing:
        raise EntryNotFoundError(f"no entry {missing[0]}", hint="kb list")
    key = keys.own_key(config_folder())
    for entry_id in ids or [one for one in known if one.startswith("kernel/")]:
        if progress is not None:
            progress(entry_id)
        yield _validate_one(root, entry_id, key)


def _validate_one(root: Root, entry_id: str, key: keys.JudgeKey) -> Validated:
    stored = files.read(layout.folder_of(root.entries, entry_id), entry_id)
    reason = _not_here(stored)
    if reason is not None:
        return Validated(stored.id, stored.file.version, None, (), None, reason)
    try:
        made = _evidence(stored)
    except ValidatorError as error:
        return Validated(stored.id, stored.file.version, None, (), None, error.message)
    reasons = tuple(made["decision"]["reasons"])
    verdict = made["decision"]["verdict"]
    if not made["plan_sha256"]:
        return Validated(stored.id, stored.file.version, verdict, reasons, None, "it cannot be loaded")
    with records.writing(root.entries):
        filed = sign_and_file(root, made, key)
    return Validated(stored.id, stored.file.version, verdict, reasons, filed.path)


def _evidence(stored: StoredEntry) -> dict[str, Any]:
    from kb.validators.runtime import evidence

    began = evidence.now_utc()
    report = judge_entry(stored)
    return evidence.evidence_of(
        report,
        facts_for_judging(stored),
        began_utc=began,
        device=evidence.device_facts("cpu"),
        uses=["awkward"],
        calls=(3, 6),
    )


def facts_for_judging(stored: StoredEntry) -> dict[str, Any]:
    """Return what a record says of an entry."""
    return {
        "id": stored.id,
        "version": stored.file.version,
        "digest": stored.digest,
        "entry_point": str(stored.file.entry_point),
        "language": stored.file.language,
    }


def sign_and_file(
    root: Root, evidence: dict[str, Any], key: keys.JudgeKey, *, bundle: dict[str, Any] | None = None
) -> records.Filed:
    """Put evidence into the chain of a key, sign it and file it. The caller holds ``records.writing``.

    Args:
        root: The knowledge base.
        evidence: What ``evidence_of`` made.
        key: Signs; enrolled if the knowledge base does not know it yet.
        bundle: Where it came from, if it was made on another machine.

    Raises:
        StoreError: It cannot be written.
    """
    signed = evidence["created_utc"] if bundle is None else bundle["accepted_utc"]
    keys.enrol(root.entries, key, today=date.fromisoformat(signed[:10]), note="a judge of this knowledge base")
    made = evidence | {"prev": chain_head(root.entries, key.id), "bundle": bundle}
    made["judge"] = {**evidence["judge"], "key": key.id}
    made["signature"] = key.sign(canonical(made))
    return records.append(root.entries, made)


def _not_here(stored: StoredEntry) -> str | None:
    """Say why an entry cannot be judged on a CPU, or None."""
    if not stored.file.entry_point or not stored.file.operator:
        return "it has no code to judge"
    if "cpu" in stored.file.cannot_run_on:
        return f"not on a cpu: {stored.file.cannot_run_on['cpu']}"
    if stored.file.language not in ("triton", "torch"):
        return f"{stored.file.language} does not run on a cpu"
    file, _, function = stored.file.entry_point.partition(":")
    if function != "run":
        return "its entry point is not called run"
    others = [name for name in stored.files if name.endswith(".py") and name != file]
    return "it has more than one source file" if others else None


def chain_head(entries: Path, key: str) -> str | None:
    """Return the id of the last record that a key signed: the one that no other names."""
    own = [one for one in all_records(entries) if one.record.judge.key == key]
    named = {one.record.prev for one in own}
    heads = [record_id(one.raw) for one in own if record_id(one.raw) not in named]
    return heads[-1] if heads else None


def all_records(entries: Path) -> Iterator[records.Filed]:
    """Yield every record of a knowledge base, by entry."""
    for entry_id in layout.entry_ids(entries):
        yield from records.read(entries, entry_id)
