"""Check records: form, signatures, chains, and that each verdict follows from its record."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kb.config import Root
from kb.errors import EntryFormatError, ValidatorError
from kb.models.record import canonical, record_id
from kb.service import soundness
from kb.service.judging import admitted_workloads
from kb.store import files, layout, records
from kb.store.records import Filed
from kb.validators import keys

if TYPE_CHECKING:
    from kb.validators.operators.spec import Workload


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a record."""

    path: str
    """Path below ``entries/``."""
    message: str


@dataclass(frozen=True)
class Verified:
    """All that a verification found."""

    records: int
    faults: tuple[Fault, ...]
    not_recomputed: int
    """Records whose plan cannot be drawn again here, because their operator or entry has changed since."""


def verify(root: Root) -> Verified:
    """Check every record of a knowledge base.

    Args:
        root: The knowledge base.

    Returns:
        Faults by path; nothing is changed.

    Raises:
        EntryFormatError: The keyring is broken.
    """
    ring = keys.read_keyring(root.entries)
    faults: list[Fault] = []
    filed: list[Filed] = []
    for entry_id in layout.entry_ids(root.entries):
        try:
            filed.extend(records.read(root.entries, entry_id))
        except EntryFormatError as error:
            faults.append(Fault(entry_id, error.message))
    not_recomputed = 0
    for one in filed:
        faults.extend(_signature_faults(one, ring))
        faults.extend(Fault(one.path, message) for message in _content_faults(root, one))
        workloads = _workloads_of(root, one)
        if workloads is None:
            not_recomputed += 1
        else:
            faults.extend(Fault(one.path, message) for message in soundness.plan_faults(one.record, workloads))
    faults.extend(_chain_faults(filed))
    return Verified(len(filed), tuple(sorted(faults, key=lambda one: (one.path, one.message))), not_recomputed)


def record_faults(root: Root, one: Filed) -> list[str]:
    """Return what is wrong with one record, apart from its place in a chain: signature, verdict, times, plan.

    Args:
        root: The knowledge base.
        one: A well-formed record.

    Raises:
        EntryFormatError: The keyring is broken.
    """
    found = [fault.message for fault in _signature_faults(one, keys.read_keyring(root.entries))]
    found += _content_faults(root, one)
    workloads = _workloads_of(root, one)
    return found if workloads is None else [*found, *soundness.plan_faults(one.record, workloads)]


def _signature_faults(one: Filed, ring: dict[str, keys.PublicKey]) -> Iterator[Fault]:
    key = ring.get(one.record.judge.key)
    if key is None:
        yield Fault(one.path, f"signed by {one.record.judge.key}, which the keyring does not know")
        return
    if not key.verifies(canonical(one.raw), one.record.signature):
        yield Fault(one.path, "its signature is not its judge's: it was changed after it was signed")
    try:
        when = datetime.fromisoformat(one.record.signed_utc)
    except ValueError:
        yield Fault(one.path, f"no time: {one.record.signed_utc}")
        return
    if not key.valid_at(when):
        yield Fault(one.path, f"its judge's key was not valid on {one.record.signed_utc[:10]}")


def _chain_faults(filed: list[Filed]) -> Iterator[Fault]:
    """Find links that lead nowhere, forks, and second beginnings, by key."""
    by_key: dict[str, list[Filed]] = defaultdict(list)
    for one in filed:
        by_key[one.record.judge.key].append(one)
    for own in by_key.values():
        known = {record_id(one.raw) for one in own}
        seen: dict[str | None, str] = {}
        for one in own:
            prev = one.record.prev
            if prev is not None and prev not in known:
                yield Fault(one.path, f"the record before it, {prev[:12]}, is missing")
            if prev in seen:
                yield Fault(one.path, f"follows the same record as {seen[prev]}: the chain forks")
            seen.setdefault(prev, one.path)


def _content_faults(root: Root, one: Filed) -> Iterator[str]:
    """Compute verdict, times and hardware again from the record and its side file."""
    yield from soundness.decision_faults(one.record)
    yield from soundness.device_faults(one.record.device)
    yield from soundness.model_faults(one.record)
    samples = None
    if one.record.samples_sha256 is not None:
        try:
            samples = records.read_samples(root.entries, one.entry_id, one.record.samples_sha256)
        except EntryFormatError as error:
            yield error.message
            return
    yield from soundness.timing_faults(one.record, samples)


def _workloads_of(root: Root, one: Filed) -> "list[Workload] | None":
    """Return what the plan was drawn from; None where spec, entry or torch are not those of the record."""
    try:
        from kb.validators.runtime import fingerprint
    except ImportError:
        return None
    if one.record.operator.family not in ("values", "allocation", "comm"):
        return None
    folder: Path = layout.folder_of(root.entries, one.entry_id)
    try:
        stored = files.read(folder, one.entry_id)
        if fingerprint.operator_sha256(one.record.operator.name) != one.record.operator.sha256:
            return None
        if stored.digest != one.record.entry.digest:
            return None
        return admitted_workloads(stored.file, uses=one.record.plan.uses)
    except (EntryFormatError, ValidatorError, OSError):
        return None
