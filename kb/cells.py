"""Evidence cells: what the records of an entry prove, by device, toolchain and regime. Pure; plain dicts in and out.

A cell is what the catalogue keeps (JSON), so it holds all that is needed to tell later, against another toolchain or
day, whether it is still fresh: :mod:`kb.evidence` does that. Keys of a cell:

- ``device``, ``arch``, ``regime`` (``cold, eager``; None for values alone), ``level``;
- ``state``: ``holds``, ``refuted`` or ``review``: what the latest record on that device says;
- ``stale``: reasons that do not hang on a toolchain; ``pins``: the components of ``versions`` that it hangs on;
- ``same_code``: whether it is about the code as it is now;
- ``when``, ``version`` (of the entry), ``records`` (newest first), ``figures`` (newest of each workload), ``notes``.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from kb import toolchain

Plain = Mapping[str, Any]
Cell = dict[str, Any]

APART = timedelta(hours=1)
"""How far apart two runs on one device and one boot have to start to be independent."""

_INTERPRETED = frozenset({"triton", "gluon", "helion", "tilelang"})
"""Languages that a CPU only interprets: values, never speed."""
_TOLD_APART = ("uuid", "boot_id")
"""Facts of a device of which a difference makes two runs independent."""


@dataclass(frozen=True)
class Basis:
    """What the judge of today is, which records are held against."""

    operators: Mapping[str, str] = field(default_factory=dict)
    """Operator to the digest of its spec today."""
    revision: int = 1
    """``JUDGE_REVISION``."""
    classes: Mapping[int, str] = field(default_factory=dict)
    """Revision to ``neutral``, ``timing`` or ``values``; one that is missing counts as ``values``."""


@dataclass(frozen=True)
class Subject:
    """The entry version that stands in the files now."""

    kind: str
    version: int
    digest: str
    language: str = "none"
    outcome: str = "works"
    operator: str | None = None


@dataclass(frozen=True)
class Named:
    """A record and its path below ``entries/``."""

    path: str
    raw: Plain

    @property
    def when(self) -> str:
        """ISO 8601 in UTC, so that texts sort like times."""
        return str(self.raw["created_utc"])

    @property
    def device(self) -> str:
        """Name as the device reports it."""
        return str(self.raw["device"]["name"])

    @property
    def verdict(self) -> str:
        """``accepted``, ``rejected`` or ``needs_review``."""
        return str(self.raw["decision"]["verdict"])

    @property
    def asked(self) -> tuple[str, str]:
        """What was judged, and against what: entry digest and operator digest."""
        return str(self.raw["entry"]["digest"]), str(self.raw["operator"]["sha256"])


def cells_of(subject: Subject, records: Sequence[tuple[str, Plain]], basis: Basis) -> list[Cell]:
    """Compute the cells of an entry.

    Args:
        subject: The entry as it is now.
        records: Path below ``entries/`` and plain form of each valid record of the entry, of any version.
        basis: The judge of today.

    Returns:
        Cells by device, then newest first; none where there is no record.
    """
    groups: dict[tuple[str, str, str], list[Named]] = defaultdict(list)
    named = sorted((Named(*one) for one in records), key=lambda one: (one.when, one.path), reverse=True)
    for one in named:
        groups[(one.device, *one.asked)].append(one)
    found: list[Cell] = []
    for group in groups.values():
        found.extend(_of_group(subject, group, named, basis))
    return sorted(found, key=lambda cell: (cell["device"], _descending(cell["when"]), cell["regime"] or ""))


def _descending(text: str) -> tuple[int, ...]:
    return tuple(-ord(character) for character in text)


def _of_group(subject: Subject, group: list[Named], everything: list[Named], basis: Basis) -> Iterator[Cell]:
    """Compute the cells of what one device says of one code against one operator; ``group`` is newest first."""
    stale = [*_code_stale(subject, group[0], everything), *_operator_stale(group[0], basis)]
    as_said = _expected(subject)
    if group[0].verdict == as_said:
        lasting = []
        for one in group:
            if one.verdict != as_said:
                break
            lasting.append(one)
        notes = (
            [f"{group[len(lasting)].verdict} on {group[len(lasting)].when[:10]}"] if len(lasting) < len(group) else []
        )
        yield from _values(subject, lasting, stale, notes, basis)
        if as_said == "accepted":
            yield from _timed(subject, lasting, stale, basis)
        return
    latest = group[0]
    why = ", ".join(latest.raw["decision"]["reasons"]) or "no reason named"
    state = "review" if latest.verdict == "needs_review" else "refuted"
    note = f"{latest.verdict.replace('_', ' ')} on {latest.when[:10]}: {why}"
    before = next((one for one in group if one.verdict == as_said), None)
    notes = [note] if before is None else [note, f"{before.verdict} before, on {before.when[:10]}"]
    yield _cell(subject, group, "documented", stale=stale, notes=notes, state=state)


def _expected(subject: Subject) -> str:
    """Return the verdict that bears the entry out: one about wrong values says itself that the judge rejects it."""
    return "rejected" if subject.outcome == "incorrect" else "accepted"


def _level(subject: Subject, record: Named) -> str:
    """Return what an accepted record proves of values.

    The whole model, where a combination was judged as a whole; a measurement, where the memory that a strategy hands
    out was seen from outside and set beside that of a baseline on the same traces.
    """
    if subject.outcome == "incorrect":
        return "documented"
    memory = record.raw.get("memory") or {}
    if record.raw["operator"].get("family") == "allocation" and memory.get("outside_peak_bytes"):
        return "measured" if (memory.get("figures") or {}).get("baselines") else "correct"
    whole = subject.kind == "combination" and record.raw["operator"].get("family") == "model"
    return "end_to_end" if whole else "correct"


def _cell(
    subject: Subject,
    group: Sequence[Named],
    level: str,
    *,
    stale: Sequence[str],
    notes: Sequence[str] = (),
    state: str = "holds",
    regime: str | None = None,
    figures: Sequence[Plain] = (),
) -> Cell:
    latest = group[0]
    versions = toolchain.versions_of(latest.raw)
    baselines = frozenset(str(one["baseline"]) for one in figures)
    pins = toolchain.pins(subject.language, timing=regime is not None, baselines=baselines)
    return {
        "device": latest.device,
        "arch": str(latest.raw["device"].get("arch", "")),
        "regime": regime,
        "level": level,
        "state": state,
        "stale": list(stale),
        "same_code": latest.raw["entry"]["digest"] == subject.digest,
        "pins": [one for one in pins if one in versions],
        "versions": versions,
        "when": latest.when,
        "version": int(latest.raw["entry"]["version"]),
        "records": [one.path for one in group],
        "figures": [dict(one) for one in figures],
        "notes": list(notes),
    }


def _values(subject: Subject, lasting: list[Named], stale: list[str], notes: list[str], basis: Basis) -> Iterator[Cell]:
    pins = toolchain.pins(subject.language, timing=False)
    for group in _by_toolchain(lasting, pins).values():
        older = list(_revision_stale(group[0], basis, ("values",)))
        said = ["rejected by the judge, as the entry says"] if subject.outcome == "incorrect" else []
        put_aside = [
            f"a time was quarantined: {one['quarantined']}" for one in _timings(group[0]) if one.get("quarantined")
        ]
        yield _cell(
            subject, group, _level(subject, group[0]), stale=[*stale, *older], notes=[*said, *notes, *put_aside[:1]]
        )


def _by_toolchain(records: Sequence[Named], pins: Sequence[str]) -> dict[tuple[str | None, ...], list[Named]]:
    found: dict[tuple[str | None, ...], list[Named]] = defaultdict(list)
    for one in records:
        versions = toolchain.versions_of(one.raw)
        found[tuple(versions.get(pin) for pin in pins)].append(one)
    return found


def _timed(subject: Subject, lasting: list[Named], stale: list[str], basis: Basis) -> Iterator[Cell]:
    """Compute a cell for each regime and toolchain in which an accepted candidate was timed."""
    if lasting[0].device == "cpu" and subject.language in _INTERPRETED:
        return
    by_regime: dict[str, dict[str, Named]] = defaultdict(dict)
    baselines: dict[str, set[str]] = defaultdict(set)
    for one in lasting:
        for regime, figure in _figures(one):
            baselines[regime].add(figure["baseline"])
            by_regime[regime][one.path] = one
    for regime, timed in by_regime.items():
        pins = toolchain.pins(subject.language, timing=True, baselines=frozenset(baselines[regime]))
        for group in _by_toolchain(list(timed.values()), pins).values():
            figures, notes, confirmed = _newest(group, regime)
            level = _level(subject, group[0])
            if level == "correct":
                level = "confirmed" if confirmed else "measured"
            older = list(_revision_stale(group[0], basis, ("values", "timing")))
            yield _cell(subject, group, level, stale=[*stale, *older], notes=notes, regime=regime, figures=figures)


def _timings(record: Named) -> list[Plain]:
    timing = record.raw.get("timing") or []
    return [one for one in ([timing] if isinstance(timing, Mapping) else timing) if isinstance(one, Mapping)]


def _figures(record: Named) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield regime and figure of every timing of a record that counts: a baseline, nothing quarantined."""
    for one in _timings(record):
        baseline: Plain = one.get("baseline") or {}
        taken: Plain = one.get("candidate_us") or {}
        median, ratio = _number(taken.get("median")), _number(one.get("ratio"))
        if not baseline.get("name") or one.get("quarantined") is not None or one.get("clocks_agree") is False:
            continue
        if median is None or ratio is None:
            continue
        regime: Plain = one.get("regime") or {}
        ends = [_number(end) for end in one.get("interval") or ()]
        yield (
            f"{regime.get('cache', 'cold')}, {regime.get('launch', 'eager')}",
            {
                "workload": workload_text(one.get("workload") or {}),
                "median_us": median,
                "p10_us": _number(taken.get("p10")),
                "p90_us": _number(taken.get("p90")),
                "ratio": ratio,
                "interval": ends if len(ends) == 2 and None not in ends else None,
                "verdict": str(one.get("verdict")),
                "baseline": str(baseline["name"]),
                "baseline_version": baseline.get("version"),
                "roofline": _number(one.get("roofline")),
                "bound": one.get("bound"),
                "when": record.when,
            },
        )


def _number(value: object) -> float | None:
    """Return a positive, finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        return None
    return float(value)


def workload_text(workload: Plain) -> str:
    """Write a workload as a person would: ``tokens 4096, hidden_size 5120, bfloat16 (Qwen3.6 decode)``."""
    parts = [f"{axis} {size}" for axis, size in (workload.get("axes") or {}).items()]
    parts += [str(workload["dtype"])] if workload.get("dtype") else []
    note = f" ({workload['note']})" if workload.get("note") else ""
    return ", ".join(parts) + note


def _newest(group: Sequence[Named], regime: str) -> tuple[list[dict[str, Any]], list[str], bool]:
    """Return the newest figure of each workload, what an earlier run says otherwise, and whether one confirms it.

    A later run replaces an earlier one, it does not join it. It is confirmed by an independent one with the same
    verdict on every workload that both timed; two that could not tell faster from slower confirm nothing.
    """
    runs = [
        (one, {(figure["workload"], figure["baseline"]): figure for kind, figure in _figures(one) if kind == regime})
        for one in group
    ]
    newest: dict[tuple[str, str], dict[str, Any]] = {}
    for _, figures in runs:
        for key, figure in figures.items():
            newest.setdefault(key, figure)
    latest, own = runs[0]
    notes = []
    confirmed = False
    for other, figures in runs[1:]:
        shared = [key for key in own if key in figures]
        if not shared or not independent(latest.raw, other.raw):
            continue
        apart = [key for key in shared if own[key]["verdict"] != figures[key]["verdict"]]
        if apart:
            notes.append(f"the run of {other.when[:10]} says {figures[apart[0]]['verdict']} on {apart[0][0]}")
        elif any(own[key]["verdict"] != "AMBIGUOUS" for key in shared):
            confirmed = True
    return list(newest.values()), notes, confirmed and not notes


def independent(first: Plain, second: Plain) -> bool:
    """Tell whether two records are of independent runs: another device or boot, or starts an hour apart."""
    one, other = first["device"], second["device"]
    if any(one.get(fact) and other.get(fact) and one[fact] != other[fact] for fact in _TOLD_APART):
        return True
    times = [datetime.fromisoformat(str(record["created_utc"])) for record in (first, second)]
    return abs(times[0] - times[1]) >= APART


def _code_stale(subject: Subject, record: Named, everything: Sequence[Named]) -> Iterator[str]:
    entry = record.raw["entry"]
    if entry["digest"] == subject.digest:
        return
    judged = int(entry["version"])
    others = {int(one.raw["entry"]["version"]) for one in everything if one.raw["entry"]["digest"] != entry["digest"]}
    changed = min((one for one in {*others, subject.version} if one > judged), default=None)
    if changed is None:
        yield f"code changed within version {judged}"
    elif changed == judged + 1:
        yield f"code changed in version {changed}"
    else:
        yield f"code changed after version {judged}, in version {changed} at the latest"


def _operator_stale(record: Named, basis: Basis) -> Iterator[str]:
    operator = record.raw["operator"]
    today = basis.operators.get(str(operator["name"]))
    if today is None and operator.get("family") == "model":
        return  # the judge of whole models has no spec of its own: what it means follows the judge's revision
    if today is None:
        yield f"operator {operator['name']} is not known here"
    elif today != operator["sha256"]:
        yield "the operator's meaning changed"


def _revision_stale(record: Named, basis: Basis, classes: tuple[str, ...]) -> Iterator[str]:
    """Say which later revisions of the judge, of these classes, a record was not made by."""
    made = int(record.raw["judge"]["revision"])
    if made > basis.revision:
        yield f"made by judge revision {made}, newer than {basis.revision} here: its rules are not known"
    since = {one: basis.classes.get(one, "values") for one in range(made + 1, basis.revision + 1)}
    for what, said in (("values", "what it accepts"), ("timing", "how it takes times")):
        changed = [revision for revision, kind in since.items() if kind == what]
        if changed and what in classes:
            yield f"the judge changed {said} in revision {changed[-1]}"
            return
