"""``kb check``: find everything that is wrong with entries."""

from dataclasses import asdict
from typing import Annotated

import typer

from kb.cli.output import Json, RootOption, say, write, write_json
from kb.errors import EntryFormatError


def check(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH…]", help="Ids, folders or files; all if none.")
    ] = None,
    history: Annotated[bool, typer.Option(help="Compare versions with the default branch in git.")] = True,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Check entries: format, digests and versions, references, limits, operators. Judges nothing."""
    from kb.config import find_root
    from kb.service.checking import check as check_entries

    report = check_entries(paths, find_root(root), history=history)
    if json:
        write_json({"entries": report.entries, "ok": report.ok, "findings": [asdict(one) for one in report.findings]})
    for finding in () if json else report.findings:
        write(f"{finding.severity}: {finding.message}")
        if finding.hint:
            write(f"  {finding.hint}")
    counts = {name: sum(one.severity == name for one in report.findings) for name in ("problem", "warning", "note")}
    say(f"{report.entries} entries, " + ", ".join(f"{count} {name}s" for name, count in counts.items()))
    if not report.ok:
        raise typer.Exit(EntryFormatError.exit_code)


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("check")(check)
