"""Validate entries: have them judged on a device, and file what came out as signed, chained records."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.config import Root, config_folder
from kb.errors import ConfigError, DeviceUnavailableError, EntryNotFoundError, ValidatorError
from kb.models.record import canonical, record_id
from kb.service import ceilings, orders
from kb.service.device_locking import device_lock
from kb.store import files, layout, records
from kb.validators import keys

if TYPE_CHECKING:
    from kb.validators.runtime.attempt import Attempt, Machine

_WAIT_S = 24 * 3600.0

_NO_TORCH = "pip install 'kernel-kb[gpu]'"


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
    timing: bool | None = None,
    progress: Callable[[str], None] | None = None,
    waiting: Callable[[str], None] | None = None,
) -> Iterator[Validated]:
    """Judge entries one after another, alone on the device; each record is filed before the next begins.

    Args:
        root: The knowledge base, not the packaged starter.
        ids: Entry ids; none means all entries with code that the judge can run.
        device: ``cpu`` or ``cuda:N``.
        timing: Take times too; None for on a GPU only.
        progress: Called with the id that is being judged.
        waiting: Told who is waited for, where somebody else judges on the device.

    Yields:
        One result an entry; an entry that cannot be judged here says why and stops nothing.

    Raises:
        ConfigError: The knowledge base cannot be written.
        DeviceUnavailableError: The judge cannot use this device.
        EntryNotFoundError: An id is not in the knowledge base.
        LockBusyError: Somebody else judged on the device all day.
    """
    _writable(root)
    chosen_ids(root, ids)
    with device_lock(device, wait_s=_WAIT_S, waiting=waiting):
        yield from judged(root, ids, device=device, timing=timing, progress=progress)


def judged(
    root: Root,
    ids: Sequence[str],
    *,
    device: str = "cpu",
    timing: bool | None = None,
    progress: Callable[[str], None] | None = None,
) -> Iterator[Validated]:
    """Judge entries as ``validate`` does; the caller holds ``device_lock``."""
    _writable(root)
    chosen = chosen_ids(root, ids)
    machine = machine_of(device)
    key = keys.own_key(config_folder())
    timed = device != "cpu" if timing is None else timing
    for entry_id in chosen:
        if progress is not None:
            progress(entry_id)
        yield _validate_one(root, entry_id, key, machine, timed=timed)


def _writable(root: Root) -> None:
    if root.packaged:
        raise ConfigError("the packaged starter entries are never written to", hint="kb init DIR; kb --root DIR …")


def chosen_ids(root: Root, ids: Sequence[str]) -> list[str]:
    """Return the asked ids, or those of all entries of a kind that has code.

    Raises:
        EntryNotFoundError: An id is not in the knowledge base.
    """
    known = list(layout.entry_ids(root.entries))
    missing = [one for one in ids if one not in known]
    if missing:
        raise EntryNotFoundError(f"no entry {missing[0]}", hint="kb list")
    return list(ids) or [one for one in known if one.startswith(("kernel/", "allocation/", "comm/"))]


def machine_of(device: str) -> "Machine":
    """Return this machine as the judge sees it.

    Raises:
        DeviceUnavailableError: There is no such device, or its name has another form.
        ValidatorError: torch is missing.
    """
    try:
        from kb.validators.runtime.attempt import Machine
        from kb.validators.runtime.driver import DriverError
    except ImportError as error:
        raise ValidatorError(f"the judge needs torch and numpy: {error}", hint=_NO_TORCH) from error
    try:
        machine = Machine(device)
    except (DriverError, ValueError) as error:
        raise DeviceUnavailableError(f"{device} cannot be used: {error}", hint="kb doctor; --device cpu") from error
    machine.ceilings = ceilings.of_device(str(machine.facts["name"]))
    return machine


def _validate_one(root: Root, entry_id: str, key: keys.JudgeKey, machine: "Machine", *, timed: bool) -> Validated:
    stored = files.read(layout.folder_of(root.entries, entry_id), entry_id)
    reason = orders.not_judged(stored) or orders.not_on(stored, str(machine.facts["arch"]))
    if reason is not None:
        return Validated(stored.id, stored.file.version, None, (), None, reason)
    kind = machine.device.partition(":")[0]
    try:
        order = orders.order_of(stored, uses=orders.uses_on(kind), timed_on=kind if timed else None)
        done = _attempt(order, orders.source_of(stored), machine)
    except ValidatorError as error:
        return Validated(stored.id, stored.file.version, None, (), None, error.message)
    made = done.evidence
    reasons = tuple(made["decision"]["reasons"])
    verdict = made["decision"]["verdict"]
    if not made["plan_sha256"]:
        return Validated(stored.id, stored.file.version, verdict, reasons, None, "it cannot be loaded")
    with records.writing(root.entries):
        filed = sign_and_file(root, made, key, samples=done.side_file)
    return Validated(stored.id, stored.file.version, verdict, reasons, filed.path)


def _attempt(order: dict[str, Any], source: bytes, machine: "Machine") -> "Attempt":
    from kb.validators.runtime.attempt import attempt
    from kb.validators.runtime.errors import JudgeError

    try:
        return attempt(order, source, machine=machine)
    except JudgeError as error:
        raise ValidatorError(error.message, hint=error.hint) from error
    except (MemoryError, OSError) as error:
        raise ValidatorError(f"the judge could not work: {error}", hint="kb doctor; free some memory") from error


def sign_and_file(
    root: Root,
    evidence: dict[str, Any],
    key: keys.JudgeKey,
    *,
    samples: bytes | None = None,
    bundle: dict[str, Any] | None = None,
) -> records.Filed:
    """Put evidence into the chain of a key, sign it and file it. The caller holds ``records.writing``.

    Args:
        root: The knowledge base.
        evidence: What ``evidence_of`` made.
        key: Signs; enrolled if the knowledge base does not know it yet.
        samples: Bytes of the side file, if anything was timed.
        bundle: Where it came from, if it was made on another machine.

    Raises:
        StoreError: It cannot be written.
    """
    signed = evidence["created_utc"] if bundle is None else bundle["accepted_utc"]
    keys.enrol(root.entries, key, today=date.fromisoformat(signed[:10]), note="a judge of this knowledge base")
    made = evidence | {"prev": chain_head(root.entries, key.id), "bundle": bundle}
    made["judge"] = {**evidence["judge"], "key": key.id}
    made["signature"] = key.sign(canonical(made))
    return records.append(root.entries, made, samples=samples)


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
