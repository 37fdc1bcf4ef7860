"""What happened when somebody used an entry: stored beside it, append-only, and read by the plan."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kb import hardware
from kb.config import Root
from kb.errors import ConfigError, DeviceUnavailableError, EntryFormatError, EntryNotFoundError, EvidenceRefusedError
from kb.models.plan import RESULTS, Outcome, Reported
from kb.models.record import record_id
from kb.models.vocabulary import ENTRY_ID
from kb.planning import Tally
from kb.service import history, proving, verifying
from kb.service.targets import whole_id
from kb.store import files, layout, outcomes, records
from kb.store.files import StoredEntry
from kb.store.outcomes import Borne, FiledOutcome, OutcomeFile, Used
from kb.store.records import Filed
from kb.units import geometric_mean

if TYPE_CHECKING:
    from kb.validators.keys import PublicKey

NOTE_LENGTH = 400
"""Most characters of a note."""

_PATH_LENGTH = 4096
_RECORD_NAME = re.compile(r"[0-9A-Za-z][\w.\-]{1,120}\.json")

OTHER_TARGET = 0.5
"""Weight of what was reported on another target."""
OTHER_CODE = 0.5
"""Weight of what was reported of an earlier version of the code."""
NO_RECORD = 0.5
"""Weight of a loss or a draw that no record bears out: anybody can say so."""


def report_outcome(
    root: Root, entry: str, *, target: str, result: str, record: str | None = None, note: str | None = None
) -> Outcome:
    """Store what came of using an entry on a target.

    Args:
        root: The knowledge base.
        entry: Id of the entry that was used, or a slug that only one entry has.
        target: Likewise of the target that it was used on.
        result: ``won``, ``neutral``, ``lost`` or ``not_applied``.
        record: Path of a record by the judge, of this version of the entry; needed for ``won``. Of an entry without
            code (an idea) it is a record of an entry that names it in its lineage.
        note: One line of at most 400 characters.

    Returns:
        What was stored; reporting the same again stores nothing and returns it as it stands.

    Raises:
        ConfigError: The result or the note is none, or the knowledge base cannot be written.
        EntryNotFoundError: There is no such entry or target.
        EvidenceRefusedError: A record that does not verify, is of other code or another device, or shows no gain for
            ``won``; or no record for it.
    """
    if root.packaged:
        raise ConfigError("the starter entries cannot be written", hint="kb init DIR, and --root DIR")
    if result not in RESULTS:
        raise ConfigError(f"no result is called {result!r}", hint=f"one of {', '.join(RESULTS)}")
    said = _note(note)
    used, goal = _stored(root, entry), _stored(root, whole_id(root, target))
    if goal.file.target is None:
        raise ConfigError(f"{goal.id} is no target", hint="kb list --kind target")
    if used.kind in ("target", "campaign"):
        raise ConfigError(f"{used.id} is a {used.kind}: nothing to use", hint="kb seed TARGET offers entries")
    if result == "won" and record is None:
        hint = "kb validate ENTRY --device cuda:0 makes one; then --record PATH"
        raise EvidenceRefusedError("won needs a record by the judge", hint=hint)
    borne = None if record is None else _borne(root, used, goal, record, result)
    made = OutcomeFile(
        schema=1,
        date=datetime.now(UTC).date().isoformat(),
        entry=Used(id=used.id, version=used.file.version, digest=used.digest),
        target=Used(id=goal.id, version=goal.file.version, digest=goal.digest),
        result=result,  # type: ignore[arg-type]  # checked above
        record=None if borne is None else Borne(path=borne.path, sha256=record_id(borne.raw)),
        speedup=None if borne is None else _speedup(borne),
        device=None if borne is None else str(borne.raw["device"]["name"]),
        note=said,
    )
    filed, new = outcomes.append(root.entries, made)
    return shown(filed, new=new)


def shown(filed: FiledOutcome, *, new: bool = False) -> Outcome:
    """Return an outcome as surfaces give it."""
    file = filed.file
    return Outcome(
        entry=file.entry.id,
        version=file.entry.version,
        digest=file.entry.digest,
        target=file.target.id,
        target_digest=file.target.digest,
        result=file.result,
        record=None if file.record is None else file.record.path,
        record_sha256=None if file.record is None else file.record.sha256,
        speedup=file.speedup,
        device=file.device,
        note=file.note,
        date=file.date,
        path=filed.path,
        new=new,
    )


def _note(note: str | None) -> str | None:
    if note is None or not note.strip():
        return None
    said = note.strip()
    if len(said) > NOTE_LENGTH or not said.isprintable():
        raise ConfigError(f"expected a note of one printable line of at most {NOTE_LENGTH} characters")
    return said


def _stored(root: Root, reference: str) -> StoredEntry:
    name, version = history.resolve(root, reference)
    folder = layout.folder_of(root.entries, name)
    if not folder.is_dir():
        raise EntryNotFoundError(f"no entry has the id {name!r}", hint="kb list")
    stored = files.read(folder, name)
    if version is not None and version != stored.file.version:
        raise ConfigError(f"{name} is at version {stored.file.version}; an outcome is of what is there now")
    return stored


def _borne(root: Root, used: StoredEntry, goal: StoredEntry, given: str, result: str) -> Filed:
    """Read the record and hold it against what is claimed.

    Raises:
        EvidenceRefusedError: It does not bear the claim out.
    """
    entry_id, name = _place(used, given)
    filed = _record(root, entry_id, name)
    faults = verifying.record_faults(root, filed)
    if faults:
        raise EvidenceRefusedError(f"{filed.path}: {faults[0]}", hint="kb verify")
    subject = used if entry_id == used.id else _descendant(root, used, entry_id)
    if filed.record.entry.digest != subject.digest:
        message = f"{filed.path}: it is of version {filed.record.entry.version}, or of other code than {subject.id} has"
        raise EvidenceRefusedError(message, hint=f"kb validate {subject.id}")
    _on_target(filed, goal)
    verdict = filed.record.decision.verdict
    if result == "won":
        _is_gain(filed, verdict)
    return filed


def _place(used: StoredEntry, given: str) -> tuple[str, str]:
    """Take the path of a record apart: a whole one, one below the entries, or its mere name."""
    if _RECORD_NAME.fullmatch(given):
        return used.id, given
    parts = given.replace("\\", "/").split("/")
    if len(given) <= _PATH_LENGTH and len(parts) >= 5 and parts[-2] == layout.RECORDS:
        entry_id, name = "/".join(parts[-5:-2]), parts[-1]
        if ENTRY_ID.fullmatch(entry_id) and _RECORD_NAME.fullmatch(name):
            return entry_id, name
    message = f"no record at {layout.printable(given[:200])!r}: expected KIND/TOPIC/SLUG/records/NAME.json"
    raise EvidenceRefusedError(message, hint=f"kb evidence {used.id} names its records")


def _record(root: Root, entry_id: str, name: str) -> Filed:
    if name.startswith(records.SAMPLES):
        raise EvidenceRefusedError(f"{name} holds samples, and is no record", hint=f"kb evidence {entry_id}")
    try:
        return records.read_one(root.entries, entry_id, name)
    except EntryFormatError as error:
        said = error.message.replace(f"{root.entries}/", "")
        message = f"{entry_id}/{layout.RECORDS}/{name}: {said.removeprefix(f'{entry_id}/{layout.RECORDS}/{name}: ')}"
        raise EvidenceRefusedError(message, hint=error.hint or f"kb evidence {entry_id} names its records") from error


def _descendant(root: Root, used: StoredEntry, entry_id: str) -> StoredEntry:
    """Return the entry whose record speaks for an idea: one that says in its lineage that it came from it."""
    other = _stored(root, entry_id)
    parents = {one.parent for one in other.file.lineage}
    if used.file.entry_point is not None or used.id not in parents:
        message = f"the record is of {entry_id}, not of {used.id}"
        hint = "an entry without code is borne out by an entry that names it in its lineage"
        raise EvidenceRefusedError(message, hint=hint)
    return other


def _on_target(filed: Filed, goal: StoredEntry) -> None:
    device = str(filed.raw["device"]["name"])
    names: set[str] = set()
    for one in goal.file.target.devices if goal.file.target is not None else ():
        try:
            names |= set(hardware.resolve(one).device_names)
        except DeviceUnavailableError:
            names.add(one)
    if device not in names:
        message = f"{filed.path} was made on {device}, and the target runs on {', '.join(sorted(names))}"
        raise EvidenceRefusedError(message, hint="judge it on the target's device")


def _is_gain(filed: Filed, verdict: str) -> None:
    if verdict != "accepted":
        raise EvidenceRefusedError(
            f"{filed.path}: the judge said {verdict}", hint="report it as lost, or mend the code"
        )
    speedup = _speedup(filed)
    if speedup is not None and speedup <= 1:
        message = f"{filed.path}: {speedup:.3g} times as fast as its baseline is no gain"
        raise EvidenceRefusedError(message, hint="report it as neutral or lost")
    if speedup is None and filed.record.operator.family == "values":
        message = f"{filed.path} was not timed against a baseline"
        raise EvidenceRefusedError(message, hint="kb validate --timing, or kb bundle --timing")


def _speedup(filed: Filed) -> float | None:
    """Return the geometric mean of what a record's timings that count say; None where none does."""
    ratios = [
        one.ratio
        for one in filed.record.timing or ()
        if one.ratio is not None and one.quarantined is None and one.clocks_agree
    ]
    found = geometric_mean(ratios)
    return None if found is None else float(f"{found:.4g}")


def read_all(root: Root, rows: Iterable[Mapping[str, Any]]) -> tuple[list[FiledOutcome], list[str]]:
    """Read the outcomes of entries.

    Args:
        root: The knowledge base.
        rows: Of the catalogue: id and files.

    Returns:
        Outcomes by entry and name, and one line for each file that counts for nothing.
    """
    found: list[FiledOutcome] = []
    ignored: list[str] = []
    ring = proving.judges_of(root.entries).ring
    for row in rows:
        for path in row["files"]:
            folder, _, name = path.partition("/")
            if folder != layout.OUTCOMES:
                continue
            try:
                filed = outcomes.read_one(root.entries, row["id"], name)
            except EntryFormatError as error:
                ignored.append(error.message)
                continue
            fault = _no_longer(root, filed, ring)
            if fault is None:
                found.append(filed)
            else:
                ignored.append(f"{filed.path}: {fault}")
    return found, ignored


def _no_longer(root: Root, filed: FiledOutcome, ring: Mapping[str, "PublicKey"]) -> str | None:
    """Say why an outcome counts for nothing: a win whose record is gone or no longer verifies."""
    borne = filed.file.record
    if borne is None:
        return "won without a record" if filed.file.result == "won" else None
    parts = borne.path.split("/")
    if len(parts) != 5 or parts[3] != layout.RECORDS:
        return "it names no record"
    try:
        record = records.read_one(root.entries, "/".join(parts[:3]), parts[4])
    except EntryFormatError as error:
        return error.message.replace(f"{root.entries}/", "")
    if record_id(record.raw) != borne.sha256:
        return "its record is another one"
    return proving.record_fault(root.entries, record, ring)


def tallies(found: Iterable[FiledOutcome], *, target: str, digests: Mapping[str, str]) -> dict[str, Tally]:
    """Count outcomes by entry, weighed for a target.

    Args:
        found: Outcomes that count.
        target: Id of the target that is planned for.
        digests: Entry id to its digest today.
    """
    made: dict[str, Tally] = {}
    for one in found:
        file = one.file
        weight = 1.0 if file.target.id == target else OTHER_TARGET
        weight *= 1.0 if file.entry.digest == digests.get(one.entry_id) else OTHER_CODE
        weight *= 1.0 if file.record is not None else NO_RECORD
        before = made.get(one.entry_id, Tally())
        counted: dict[str, Any] = {file.result: getattr(before.reported, file.result) + 1}
        changed: dict[str, Any] = {"reported": Reported(**{**before.reported.__dict__, **counted})}
        if file.result != "not_applied":
            changed[file.result] = getattr(before, file.result) + weight
        made[one.entry_id] = before.with_(**changed)
    return made
