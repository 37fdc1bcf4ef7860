"""Turn the records of entries into cells: check each record, and hold it against the judge of today."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb import cells, toolchain
from kb.catalogue import DRIVER
from kb.config import read_settings
from kb.errors import EntryFormatError
from kb.store import layout

if TYPE_CHECKING:
    from kb.store.files import StoredEntry
    from kb.store.records import Filed
    from kb.validators.keys import PublicKey

_AHEAD = timedelta(days=1)
"""How far a record may be ahead of this machine's clock: the latest record counts, so none may be it for ever."""
_GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class Judges:
    """What records are held against."""

    basis: cells.Basis
    ring: Mapping[str, "PublicKey"]
    digest: str
    """Of both; where it is another, cells have to be computed anew."""


def judges_of(entries: Path) -> Judges:
    """Return today's judge and the keys that a knowledge base knows; a broken keyring knows none.

    Args:
        entries: Folder of the entries.
    """
    from kb.validators import keys
    from kb.validators.runtime import fingerprint

    basis = basis_of_today()
    try:
        ring = keys.read_keyring(entries)
    except EntryFormatError:
        ring = {}
    folder = _specs()
    named = {
        "operators": fingerprint.digest_of(folder, folder.glob("*.py")),
        "revision": basis.revision,
        "classes": {str(number): kind for number, kind in basis.classes.items()},
        "ring": {name: [str(key.valid_from), str(key.valid_until)] for name, key in ring.items()},
    }
    return Judges(basis, ring, hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest())


class _Operators(Mapping[str, str]):
    """Operator to the digest of its spec; made when it is asked for, because most are not."""

    def __init__(self, folder: Path) -> None:
        self._names = sorted(file.stem for file in folder.glob("*.py"))
        self._made: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        from kb.validators.runtime import fingerprint

        if name not in self._made:
            if name not in self._names:
                raise KeyError(name)
            self._made[name] = fingerprint.operator_sha256(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _specs() -> Path:
    from kb.validators.runtime import fingerprint

    return Path(fingerprint.__file__).parents[1] / "operators"


def basis_of_today() -> cells.Basis:
    """Return the operators and the revision of the judge that is installed; needs neither torch nor numpy."""
    from kb.validators.runtime import fingerprint

    return cells.Basis(_Operators(_specs()), fingerprint.JUDGE_REVISION, fingerprint.REVISIONS)


def cells_of(entries: Path, stored: "StoredEntry", judges: Judges) -> tuple[list[cells.Cell], list[str]]:
    """Compute what the records of an entry prove.

    Args:
        entries: Folder of the entries.
        stored: The entry as it is now.
        judges: What they are held against.

    Returns:
        Cells, and one line for each record that counts for nothing: path and why.
    """
    names = [name.partition("/")[2] for name in stored.evidence if name.startswith(f"{layout.RECORDS}/")]
    if not names:
        return [], []
    from kb.store import records

    good: list[tuple[str, Mapping[str, Any]]] = []
    ignored: list[str] = []
    for name in names:
        if name.startswith(records.SAMPLES):
            continue
        try:
            filed = records.read_one(entries, stored.id, name)
            fault = _fault(filed, judges.ring) or _samples_fault(filed, names)
        except EntryFormatError as error:
            fault, filed = error.message.replace(f"{entries}/", "").partition(": ")[2] or error.message, None
        if fault is not None or filed is None:
            ignored.append(f"{stored.id}/{layout.RECORDS}/{name}: {fault}")
        else:
            good.append((filed.path, filed.raw))
    file = stored.file
    subject = cells.Subject(stored.kind, file.version, stored.digest, file.language, file.outcome, file.operator)
    return cells.cells_of(subject, good, judges.basis), ignored


def record_fault(entries: Path, filed: "Filed", ring: Mapping[str, "PublicKey"]) -> str | None:
    """Say why a record counts for nothing, or None; as for the catalogue, so without reading its samples.

    Args:
        entries: Folder of the entries.
        filed: A well-formed record.
        ring: Keys of judges that the knowledge base knows.
    """
    folder = layout.folder_of(entries, filed.entry_id) / layout.RECORDS
    return _fault(filed, ring) or _samples_fault(filed, [path.name for path in folder.glob("*.json")])


def _fault(filed: "Filed", ring: Mapping[str, "PublicKey"]) -> str | None:
    """Say why a well-formed record counts for nothing, or None; ``kb verify`` checks chains and plans besides."""
    from kb.models.record import canonical, decided

    record = filed.record
    key = ring.get(record.judge.key)
    if key is None:
        return f"signed by {record.judge.key}, which the keyring does not know"
    if not key.verifies(canonical(filed.raw), record.signature):
        return "its signature is not its judge's: it was changed after it was signed"
    try:
        began, signed = (_time(text) for text in (record.created_utc, record.signed_utc))
    except ValueError:
        return f"no time: {record.created_utc}"
    if not key.valid_at(signed):
        return f"its judge's key was not valid on {record.signed_utc[:10]}"
    if began > datetime.now(UTC) + _AHEAD:
        return f"it is of the future: {record.created_utc}"
    if decided(record) != record.decision.verdict:
        return f"its cases give {decided(record)}, not {record.decision.verdict}"
    return None if isinstance(record.device.get("name"), str) else "it names no device"


def _samples_fault(filed: "Filed", names: Sequence[str]) -> str | None:
    """Say whether times lack the samples they can be computed from again; what is in these, ``kb verify`` reads."""
    from kb.store import records

    sha256 = filed.record.samples_sha256
    if sha256 is None:
        timed = bool(filed.record.timing) and filed.record.operator.family == "values"
        return "its times have no samples" if timed else None
    return None if records.samples_name(sha256) in names else "its samples are missing"


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def meta_of(everything: Iterable[Sequence[Mapping[str, Any]]]) -> dict[str, str]:
    """Return what the catalogue keeps to hold cells against: toolchains by device, and the age limit of times.

    The toolchain of a device is that of its newest record; for this machine's own devices it is what is installed.

    Args:
        everything: The cells of every entry that has some.
    """
    newest: dict[str, dict[str, tuple[str, str]]] = {}
    for some in everything:
        for cell in some:
            known = newest.setdefault(cell["device"], {})
            for component, version in cell["versions"].items():
                known[component] = max(known.get(component, ("", "")), (cell["when"], version))
    found = {device: {name: version for name, (_, version) in known.items()} for device, known in newest.items()}
    installed = installed_versions()
    for device in own_devices():
        if device in found and installed:
            found[device] |= installed
    limit = read_settings().get("timing_days")
    days = f"{float(limit):g}" if isinstance(limit, int | float) else ""
    return {"toolchains": json.dumps(found, sort_keys=True), "timing_days": days}


def installed_versions() -> dict[str, str]:
    """Return what is installed here, as :mod:`kb.toolchain` cuts it; nothing without torch, which every run needs."""
    from kb.validators.runtime import fingerprint

    software = fingerprint.software()
    if "torch" not in software:
        return {}
    driver = _driver_version()
    return toolchain.versions_of({"software": software | ({"driver": driver} if driver else {})})


def own_devices() -> tuple[str, ...]:
    """Return the names of the devices of this machine: the CPU, and what NVIDIA's driver tells of."""
    return "cpu", *dict.fromkeys(gpu.name for gpu in gpus())


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver's files tell of it."""

    name: str
    uuid: str | None


def gpus(folder: Path = _GPUS) -> tuple[Gpu, ...]:
    """Return the GPUs of this machine by their order on the bus; none where the driver's files tell of none.

    Args:
        folder: Where the driver keeps a folder for each.
    """
    found = []
    try:
        for file in sorted(folder.glob("*/information")):
            told = dict(line.split(":", 1) for line in file.read_text(encoding="utf-8").splitlines() if ":" in line)
            name = told.get("Model", "").strip()
            if name:
                found.append(Gpu(name, told.get("GPU UUID", "").strip() or None))
    except OSError:
        return ()
    return tuple(found)


def _driver_version(file: Path = Path(DRIVER)) -> str | None:
    """Read the version in ``NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  …``."""
    try:
        words = file.read_text(encoding="utf-8").partition("\n")[0].split()
    except OSError:
        return None
    return next((word for word in words if word.count(".") >= 1 and word.replace(".", "").isdecimal()), None)
