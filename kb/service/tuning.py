"""Makes config entries of the parameters with which measured kernels were launched, as the records hold them."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kb import catalogue, hardware
from kb.config import Root
from kb.errors import ConfigError, EntryFormatError, EntryNotFoundError, StoreError
from kb.importers.base import Draft, Provenance, sha256
from kb.importers.devices import short_device
from kb.importers.naming import slug
from kb.models.record import written
from kb.models.vocabulary import EVIDENCE
from kb.service import indexing
from kb.service.drafts import Shelf
from kb.store import bulk, layout, records

_SQL = f"SELECT id, version, facts, cells, withdrawn FROM {catalogue.ENTRY} WHERE kind = 'kernel' ORDER BY id"  # noqa: S608
_MEASURED = EVIDENCE.index("measured")
_MOST_SHOWN = 36
"""Most rows in a readme; all of them are in ``config.json``."""

Plain = Mapping[str, Any]


@dataclass(frozen=True)
class Tuned:
    """What came of the records of one kernel on one device under one Triton."""

    id: str
    """Of the config entry."""
    entry: str
    """Of the kernel."""
    device: str
    triton: str
    rows: int
    state: str
    """``add``, ``update``, ``unchanged``, ``duplicate`` or ``refused``."""
    version: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class _Kernel:
    """A kernel entry, as the catalogue has it."""

    id: str
    version: int
    facts: Plain
    cells: Sequence[Plain]


@dataclass(frozen=True)
class _Row:
    """How one kernel was launched for one measured workload."""

    kernel: str
    axes: Mapping[str, int]
    dtype: str
    parameters: Plain
    median_us: Mapping[str, float]
    """Regime (``cold, graph``) to microseconds a call of the whole candidate."""
    record: str

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from other rows; rows are in this order."""
        return self.kernel, self.dtype, tuple(sorted(self.axes.items()))

    def to_json(self) -> dict[str, Any]:
        """Return it as ``config.json`` holds it, below its kernel."""
        return {
            "axes": dict(self.axes),
            "dtype": self.dtype,
            "parameters": dict(sorted(self.parameters.items())),
            "median_us": dict(sorted(self.median_us.items())),
            "record": self.record,
        }


@dataclass(frozen=True)
class _Group:
    """Rows of one kernel entry on one device under one Triton."""

    entry: _Kernel
    device: str
    arch: str
    triton: str
    rows: tuple[_Row, ...]
    sources: bytes
    """The records, newest first, as they are written."""


def tuned(root: Root, ids: Sequence[str] = (), *, device: str | None = None, write: bool = False) -> list[Tuned]:
    """Make a config entry of each kernel, device and Triton version of which records hold launch parameters.

    Only what was measured counts: accepted records of the code as it is now, and of them the workloads that have a
    time that was not put aside. Of several records the newest wins, workload by workload. Doing it again changes
    nothing; where a newer record says something else, the config gets a new version.

    Args:
        root: The knowledge base.
        ids: Kernel entries; none for all.
        device: A device, family or architecture; None for all.
        write: File them; else only say what would be done.

    Returns:
        One line a config entry, by kernel, device and version.

    Raises:
        ConfigError: The knowledge base cannot be added to.
        DeviceUnavailableError: No such device is known.
        EntryNotFoundError: An id is no kernel of the knowledge base.
        StoreError: The entries cannot be written; nothing was changed then.
    """
    if write and root.packaged:
        raise ConfigError("the packaged starter entries are never written to", hint="kb init DIR; kb tuned --root DIR")
    names = None if device is None else hardware.resolve(device).device_names
    drafts = [(group, _draft(group)) for kernel in _kernels(root, ids) for group in _groups(root, kernel, names)]
    if not write:
        shelf = Shelf(root.entries)
        return [_judged(shelf, group, draft)[0] for group, draft in drafts]
    done = []
    with bulk.filing(root.entries) as filing:
        shelf = Shelf(root.entries)
        for group, draft in drafts:
            line, files = _judged(shelf, group, draft)
            if line.state in ("add", "update"):
                filing.stage(line.id, files)
            done.append(line)
    return done


def _judged(shelf: Shelf, group: _Group, draft: Draft) -> tuple[Tuned, Mapping[str, bytes]]:
    verdict = shelf.judge(draft)
    line = Tuned(
        verdict.id, group.entry.id, group.device, group.triton, len(group.rows), verdict.state, verdict.version,
        verdict.reason,
    )  # fmt: skip
    return line, verdict.files


def _kernels(root: Root, ids: Sequence[str]) -> list[_Kernel]:
    def read(connection: sqlite3.Connection) -> list[_Kernel]:
        return [
            _Kernel(name, version, catalogue.stored_json(facts), catalogue.stored_json(cells))
            for name, version, facts, cells, withdrawn in connection.execute(_SQL)
            if withdrawn is None or name in ids
        ]

    known = {one.id: one for one in indexing.ask(root, read)}
    for name in ids:
        if name not in known:
            raise EntryNotFoundError(f"no kernel {name}", hint="kb list --kind kernel")
    return [known[name] for name in dict.fromkeys(ids)] if ids else list(known.values())


def _groups(root: Root, kernel: _Kernel, devices: Sequence[str] | None) -> Iterator[_Group]:
    """Yield what the records of a kernel give, by device and Triton version."""
    found: dict[tuple[str, str], list[records.Filed]] = defaultdict(list)
    for path in _measured(kernel, devices):
        entry_id, _, name = path.rpartition(f"/{layout.RECORDS}/")
        try:
            one = records.read_one(root.entries, entry_id, name)
        except (EntryFormatError, StoreError):
            continue  # it was there when the catalogue was made; kb verify says what became of it
        triton = one.record.software.get("triton")
        if triton is not None:
            found[(str(one.raw["device"]["name"]), triton)].append(one)
    for (device, triton), filed in sorted(found.items()):
        filed.sort(key=lambda one: (one.record.created_utc, one.name), reverse=True)
        rows: dict[tuple[object, ...], _Row] = {}
        for one in filed:
            for row in _rows(one):
                rows.setdefault(row.key, row)
        if rows:
            made = tuple(sorted(rows.values(), key=lambda row: repr(row.key)))
            yield _Group(
                kernel,
                device,
                str(filed[0].raw["device"]["arch"]),
                triton,
                made,
                b"".join(written(one.raw) for one in filed),
            )


def _measured(kernel: _Kernel, devices: Sequence[str] | None) -> list[str]:
    """Return the records that measured the code as it is now; the catalogue names only those whose signature holds."""
    return list(
        dict.fromkeys(
            path
            for cell in kernel.cells
            if cell["same_code"] and cell["state"] == "holds" and cell["regime"] is not None and not cell["stale"]
            if EVIDENCE.index(cell["level"]) >= _MEASURED and (devices is None or cell["device"] in devices)
            for path in cell["records"]
        )
    )


def _rows(filed: records.Filed) -> Iterator[_Row]:
    """Yield the launches of the workloads that a record has times of."""
    if filed.record.decision.verdict != "accepted":
        return
    times: dict[tuple[object, ...], dict[str, float]] = defaultdict(dict)
    for one in filed.record.timing or ():
        if one.quarantined is None and one.clocks_agree:
            key = (tuple(sorted(one.workload.axes.items())), one.workload.dtype)
            times[key][f"{one.regime.cache}, {one.regime.launch}"] = one.candidate_us.median
    for given in filed.record.ghosts.get("launched") or ():
        row = _well_formed(given)
        if row is None:
            continue
        taken = times.get((tuple(sorted(row["axes"].items())), row["dtype"]))
        if taken:
            yield _Row(row["kernel"], row["axes"], row["dtype"], row["parameters"], taken, filed.path)


def _well_formed(given: object) -> dict[str, Any] | None:
    """Return one launch, or None: its words are the candidate's own, so its form is not taken on trust."""
    if not isinstance(given, dict) or set(given) != {"kernel", "axes", "dtype", "parameters"}:
        return None
    parameters, axes = given["parameters"], given["axes"]
    if not (isinstance(given["kernel"], str) and given["kernel"].isidentifier() and len(given["kernel"]) <= 120):
        return None
    if not (isinstance(parameters, dict) and isinstance(axes, dict) and 0 < len(parameters) <= 64):
        return None
    plain = all(
        name.isidentifier() and len(name) <= 60 and isinstance(value, int | str) for name, value in parameters.items()
    ) and all(isinstance(size, int) for size in axes.values())
    short = all(len(value) <= 60 and value.isprintable() for value in parameters.values() if isinstance(value, str))
    return given if plain and short else None


def _draft(group: _Group) -> Draft:
    """Make the draft of a config entry."""
    entry, short = group.entry, short_device(group.device)
    _, topic, name = entry.id.split("/")
    operator = str(entry.facts["operator"])
    title = f"{operator}, {name}: launch parameters, {short}"
    wanted: Plain = entry.facts.get("requires") or {}
    facts: dict[str, Any] = {
        "title": title if len(title) <= 80 else f"{name}: launch parameters, {short}"[:80],
        "summary": f"Launch parameters of {len(group.rows)} measured workloads on {short}; Triton {group.triton}.",
        "outcome": "works",
        "applies_to": [operator],
        "language": "none",
        "dtypes": [one for one in entry.facts["dtypes"] if any(row.dtype == one for row in group.rows)],
        "tags": [slug(one) for one in ("tuned-config", "launch-parameters", "block-sizes", "num-warps", short, name)],
        "questions": [f"BLOCK sizes, num_warps and num_stages for {operator} on {short}"],
        **{key: entry.facts[key] for key in ("bottleneck", "phase") if entry.facts.get(key)},
        "requires": {"arch": [group.arch], "features": wanted.get("features") or []},
        "tuned": {
            "entry": entry.id,
            "device": group.device,
            "toolchain": {"triton": group.triton},
            "axes": _shared(group.rows),
        },
        "symbols": {"profiler_names": list(dict.fromkeys(row.kernel for row in group.rows))},
    }
    facts["requires"] = {key: value for key, value in facts["requires"].items() if value}
    facts["tuned"] = {key: value for key, value in facts["tuned"].items() if value}
    return Draft(
        id=f"config/{topic}/{slug(name, short, 'triton', group.triton)}",
        facts={key: value for key, value in facts.items() if value not in ([], {})},
        readme=_readme(group, facts["title"]),
        files={layout.CONFIG: _config(group)},
        provenance=Provenance(
            repository="written here",
            path=f"{entry.id}/{layout.RECORDS}",
            sha256=sha256(group.sources),
            note="Launch parameters of measured workloads, out of signed records; digest of these, newest first.",
        ),
        license=str(entry.facts["license"]),
        restrictions=tuple(entry.facts.get("restrictions") or ()),
    )


def _shared(rows: Sequence[_Row]) -> dict[str, int]:
    """Return the sizes that all rows have in common."""
    first = rows[0].axes
    return {axis: size for axis, size in first.items() if all(row.axes.get(axis) == size for row in rows)}


def _config(group: _Group) -> bytes:
    kernels: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in group.rows:
        kernels[row.kernel].append(row.to_json())
    made = {
        "entry": group.entry.id,
        "entry_version": group.entry.version,
        "device": group.device,
        "toolchain": {"triton": group.triton},
        "kernels": kernels,
    }
    return f"{json.dumps(made, indent=2)}\n".encode("ascii")


def _readme(group: _Group, title: str) -> str:
    def cells(row: _Row) -> Iterator[str]:
        yield f"`{row.kernel}`"
        yield ", ".join(f"{axis} {size}" for axis, size in row.axes.items()) + f", {row.dtype}"
        yield ", ".join(f"{name} {value}" for name, value in sorted(row.parameters.items()))
        yield "; ".join(f"{regime} {median:.4g}" for regime, median in sorted(row.median_us.items()))

    shown = [f"| {' | '.join(cells(row))} |" for row in group.rows[:_MOST_SHOWN]]
    more = len(group.rows) - len(shown)
    lines = [
        f"# {title}",
        "",
        f"With these parameters `{group.entry.id}` (version {group.entry.version}) launched its kernels on "
        f"{group.device} under Triton {group.triton} for the workloads that the judge timed. They are the candidate's "
        "own account, of its last launch for each workload; times are the judge's, of the whole call, in microseconds.",
        "",
        "| kernel | workload | parameters | median µs |",
        "|---|---|---|---|",
        *shown,
        *([f"| … | {more} more in `config.json` | | |"] if more > 0 else []),
        "",
        "Each row of `config.json` names the record that it comes from. `kb tuned --write` made this.",
        "",
    ]
    return "\n".join(lines)
