"""What an import did with every file of a source, counted by the source's folders and by format."""

from collections import Counter
from pathlib import Path

from kb.errors import KbError, LicenseError, SourceFormatError, StoreError
from kb.service.importing import Report

BEGIN = "<!-- counts: written by kb import --report -->"
END = "<!-- end of counts -->"
HEAD = ("source", "format", "files", "imported", "entries", "copies", "refused", "left")


def rows(report: Report) -> list[tuple[str, ...]]:
    """Return one row for each folder of the source and format, then the total.

    Args:
        report: Of one import, dry or not.

    Returns:
        Rows of :data:`HEAD`: files are those that were seen, imported those that gave an entry, refused and left those
        that gave none; a file is counted once.
    """
    files: Counter[tuple[str, str]] = Counter()
    fates: Counter[tuple[str, str, str]] = Counter()
    for path, (fate, name) in report.fates.items():
        key = (_source(path), name or "–")
        files[key] += 1
        fates[(*key, fate)] += 1
    entries: Counter[tuple[str, str]] = Counter()
    copies: Counter[tuple[str, str]] = Counter()
    for line in report.lines:
        if line.id is not None and line.state != "duplicate":
            key = (_source(line.file or line.path), line.format or "–")
            entries[key] += 1
            copies[key] += line.copy_of is not None
    made = [
        (
            *key,
            *map(str, (files[key], fates[(*key, "imported")], entries[key], copies[key])),
            *(str(fates[(*key, fate)]) for fate in ("refused", "left")),
        )
        for key in sorted(files)
    ]
    totals = [sum(int(row[place]) for row in made) for place in range(2, 8)]
    return [*made, ("all", "", *map(str, totals))]


def example(report: Report, reason: str) -> str:
    """Return a file that was refused for a reason, and how many more there are."""
    found = [line.path for line in report.lines if line.state == "refused" and (line.reason or "no reason") == reason]
    return f"{found[0]}{f' and {len(found) - 1} more' if len(found) > 1 else ''}"


def fault(report: Report) -> KbError | None:
    """Return the error for an import of which nothing was taken and something was refused; None for any other.

    Args:
        report: Of one import, dry or not.

    Returns:
        A :class:`LicenseError` where only licenses stood in the way, else a :class:`SourceFormatError`; its message has
        the most frequent reason.
    """
    counts = report.counts
    if not counts["refused"] or any(counts[state] for state in ("add", "update", "unchanged", "duplicate")):
        return None
    lines = [line for line in report.lines if line.state == "refused"]
    kind = LicenseError if all(line.license is not None for line in lines) else SourceFormatError
    reason, _ = refusals(report, 1)[0]
    rest = len({line.reason for line in lines}) - 1
    others = f", and {rest} other reason{'s' * (rest > 1)}" if rest else ""
    return kind(f"nothing was taken, {counts['refused']} refused: {reason}{others}")


def refusals(report: Report, most: int = 20) -> list[tuple[str, int]]:
    """Return the reasons why files were refused, the most frequent first."""
    found = Counter(line.reason or "no reason" for line in report.lines if line.state == "refused")
    return sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))[:most]


def _source(path: str) -> str:
    return path.split("/", 1)[0] if "/" in path else "."


def table(report: Report) -> str:
    """Return the counts and the reasons of refusals as Markdown."""
    lines = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows(report)]
    found = refusals(report, 100)
    if found:
        lines += ["", "Refused, by reason:", ""]
        lines += [f"- {count}: {reason}" for reason, count in found]
    return "\n".join(lines)


def put_table(file: Path, report: Report) -> None:
    """Write the table into a page between its marks, or make the page.

    Args:
        file: A Markdown page.
        report: Of one import.

    Raises:
        StoreError: It cannot be read or written.
    """
    block = f"{BEGIN}\n{table(report)}\n{END}"
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else f"{BEGIN}\n{END}\n"
        before, found, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        file.write_text(f"{before}{block}{after}" if found else f"{text.rstrip()}\n\n{block}\n", encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {file}: {error.strerror}") from error
