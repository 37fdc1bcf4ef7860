"""Check entries: every rule of the format, what they refer to, and whether a change raised the version."""

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from kb.config import Root
from kb.errors import EntryFormatError, EntryNotFoundError
from kb.service.checking_targets import target_findings
from kb.service.findings import CheckReport, Finding
from kb.service.versions import version_findings
from kb.store import content, files, journal, layout, outcomes
from kb.store.files import StoredEntry
from kb.validators.operators import names as operators


def _below(root: Root, given: str) -> str:
    """Return the path below ``entries/`` that an argument of ``kb check`` names; empty for all of it."""
    entries = root.entries.resolve()
    path = Path(given).expanduser()
    there = [each.resolve() for each in (path, root.path / path, entries / path) if each.exists()]
    for candidate in there:
        if candidate in (entries, root.path.resolve()):
            return ""
        if candidate.is_relative_to(entries):
            return "/".join(candidate.relative_to(entries).parts[:3])
    if there:
        raise EntryNotFoundError(f"{given} is not below {entries}", hint="kb add DIR checks a folder while adding it")
    layout.parse_id(given)
    raise EntryNotFoundError(f"no entry {given!r}", hint="kb list")


def _wanted(root: Root, paths: Sequence[str] | None) -> Callable[[str], bool]:
    chosen = [_below(root, each) for each in paths] if paths else [""]
    return lambda name: any(not each or name == each or name.startswith(each + "/") for each in chosen)


def _format_findings(found: layout.Found, faults: Sequence[str]) -> Iterator[Finding]:
    for fault in faults:
        name, _, rest = fault.partition(": ")
        place = f"entries/{found.id}/{name}" if rest else f"entries/{found.id}"
        yield Finding("problem", found.id, f"{place}: {rest or fault}", f"mend {place}")


def _read(root: Root, found: layout.Found) -> tuple[StoredEntry | None, list[Finding]]:
    shown = layout.printable(found.id)
    if found.fault is not None:
        return None, [Finding("problem", shown, f"entries/{shown}: {found.fault}", f"rename or move entries/{shown}")]
    folder = root.entries / found.id
    stored, faults = files.inspect(content.read(folder), found.id)
    return stored, list(_format_findings(found, faults))


def _operator_findings(stored: StoredEntry) -> Iterator[Finding]:
    for name in dict.fromkeys([*([stored.file.operator] if stored.file.operator else []), *stored.file.applies_to]):
        if name not in operators.NAMES:
            message = f"entries/{stored.id}: operator {name!r} has no spec, so no judge can run it"
            yield Finding("warning", stored.id, message, f"write validators/operators/{name}.py, or mend the name")


def _outcome_findings(root: Root, stored: StoredEntry) -> Iterator[Finding]:
    for name in stored.evidence:
        folder, _, file = name.partition("/")
        if folder != layout.OUTCOMES:
            continue
        try:
            outcomes.read_one(root.entries, stored.id, file)
        except EntryFormatError as error:
            yield Finding("problem", stored.id, f"entries/{error.message}", error.hint)


def _references(stored: StoredEntry) -> Iterator[tuple[str, str]]:
    """Yield the field and the id of everything that an entry refers to."""
    file = stored.file
    yield from (("lineage.parent", each.parent) for each in file.lineage)
    yield from (("uses", each) for each in file.uses)
    if file.tuned is not None and file.tuned.entry is not None:
        yield "tuned.entry", file.tuned.entry
    if file.campaign is not None:
        yield "campaign.target", file.campaign.target
        yield from (("campaign.reused", each) for each in file.campaign.reused)
        yield from (("campaign.produced", each) for each in file.campaign.produced)


def _reference_findings(stored: StoredEntry, known: Mapping[str, str]) -> Iterator[Finding]:
    for field, name in _references(stored):
        if name not in known:
            message = f"entries/{stored.id}/{layout.FACTS}: field {field}: expected the id of an entry, found {name!r}"
            yield Finding("problem", stored.id, message, "kb list")
        elif name == stored.id:
            message = f"entries/{stored.id}/{layout.FACTS}: field {field}: an entry cannot refer to itself"
            yield Finding("problem", stored.id, message)
        elif field == "campaign.target" and known[name] != "target":
            message = (
                f"entries/{stored.id}/{layout.FACTS}: field {field}: expected an entry of kind target, found {name}"
            )
            yield Finding("problem", stored.id, message)


def _axis_findings(stored: Sequence[StoredEntry]) -> Iterator[Finding]:
    """Compare the axes of limits with the operators' specs, which need torch."""
    limited = [each for each in stored if each.file.limits and each.file.operator in operators.NAMES]
    if not limited:
        return
    if importlib.util.find_spec("torch") is None:
        yield Finding("note", "limits", "the axes that limits name were not checked: torch is not installed")
        return
    from kb.validators.operators import load, load_allocation

    for entry in limited:
        name = str(entry.file.operator)
        try:
            spec = load_allocation(name) if name in operators.ALLOCATION else load(name)
        except ImportError as error:
            yield Finding("note", entry.id, f"the axes that limits name were not checked: {error}")
            continue
        for axis in entry.file.limits:
            if axis not in spec.axes:
                message = (
                    f"entries/{entry.id}/{layout.FACTS}: field limits.{axis}: expected an axis of {spec.name} "
                    f"({', '.join(spec.axes)}), found {axis!r}"
                )
                yield Finding("problem", entry.id, message)


def _twins(stored: Sequence[StoredEntry]) -> Iterator[Finding]:
    """Point out entries that run the same bytes under two ids."""
    firsts: dict[str, str] = {}
    for entry in stored:
        if entry.candidate:
            first = firsts.setdefault(entry.digest, entry.id)
            if first != entry.id:
                yield Finding("warning", entry.id, f"entries/{entry.id}: what runs is the same as in {first}")


def check(paths: Sequence[str] | None, root: Root, *, history: bool = True) -> CheckReport:
    """Check entries and report every problem of every one.

    Args:
        paths: Folders, files or ids below the knowledge base; None for all.
        root: The knowledge base.
        history: Compare with the default branch in git too.

    Returns:
        All findings; a bad entry stops none of the others.

    Raises:
        EntryNotFoundError: A path names nothing in the knowledge base.
        EntryFormatError: A path is neither a path nor an id.
    """
    if not root.packaged:
        journal.recover(root.entries)
    wanted = _wanted(root, paths)
    survey = layout.survey(root.entries)
    findings = [
        Finding("problem", f"entries/{path}", f"entries/{path}: {fault}", f"move or remove entries/{path}")
        for path, fault in survey.strays
        if wanted(path)
    ]
    chosen = [each for each in survey.found if wanted(each.id)]
    known = {each.id: each.id.split("/", 1)[0] for each in survey.found if each.fault is None}
    stored = []
    for found in chosen:
        entry, faults = _read(root, found)
        findings.extend(faults)
        if entry is not None:
            stored.append(entry)
            findings.extend(_operator_findings(entry))
            findings.extend(_outcome_findings(root, entry))
            findings.extend(_reference_findings(entry, known))
            findings.extend(target_findings(entry))
    findings.extend(_axis_findings(stored))
    findings.extend(_twins(stored))
    if history and not root.packaged:
        findings.extend(version_findings(root, stored))
    order = {"problem": 0, "warning": 1, "note": 2}
    findings.sort(key=lambda each: (order[each.severity], each.where, each.message))
    return CheckReport(len(chosen), tuple(findings))


def require_valid(report: CheckReport) -> None:
    """Raise the first problem of a report, if there is one.

    Args:
        report: As :func:`check` gave it.

    Raises:
        EntryFormatError: There is a problem.
    """
    if report.problems:
        first = report.problems[0]
        raise EntryFormatError(first.message, hint=first.hint)
