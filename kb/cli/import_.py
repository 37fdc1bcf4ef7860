"""``kb import``: take in what the field already has."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kb.cli.output import Json, RootOption, progress, say, table, write, write_json

if TYPE_CHECKING:
    from kb.service.importing import Report


def _formats() -> list[str]:
    from kb.importers import registry

    return [each.name for each in registry.importers()]


def import_source(
    source: Annotated[str, typer.Argument(metavar="PATH_OR_URL", help="A folder, file, archive or git repository.")],
    format_: Annotated[
        str | None, typer.Option("--format", metavar="F", help="Only this format.", autocompletion=_formats)
    ] = None,
    root: RootOption = None,
    write_: Annotated[bool, typer.Option("--write", help="File the entries; without it nothing is changed.")] = False,
    license_: Annotated[
        str | None, typer.Option("--license", metavar="SPDX", help="License of files that state none.")
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option("--allow-license", metavar="SPDX", help="Let in a license beyond the list.")
    ] = None,
    repository: Annotated[str | None, typer.Option(metavar="OWNER/NAME", help="Where the files come from.")] = None,
    commit: Annotated[str | None, typer.Option(metavar="C", help="Commit or release of the files.")] = None,
    device: Annotated[str | None, typer.Option(metavar="D", help="Device, for formats that do not name it.")] = None,
    toolchain: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VERSION", help="Likewise the toolchain: triton=3.6.0.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Most processes that parse; the cores if left out.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write the counts by source into a Markdown page.")
    ] = None,
    json: Json = False,
) -> None:
    """Turn files of the field into entries, with their source and license. Nothing is written without --write.

    Ends with 4 if all that was found was refused, with 12 if only licenses stood in the way.
    """
    from kb.config import find_root
    from kb.service import import_report, importing, parsing_apart

    options = importing.options_of(
        format_=format_,
        write=write_,
        stated=(repository, commit, license_),
        allow=allow or [],
        device=device,
        toolchain=toolchain or [],
        jobs=jobs or parsing_apart.cores(),
    )
    with progress("importing") as show:
        done = importing.run(
            find_root(root), source, options, progress=lambda _, count, total: show(count, total or count)
        )
    if report is not None:
        import_report.put_table(report, done)
    if json:
        write_json(importing.as_json(done))
    else:
        _show(done)
    refused = import_report.fault(done)
    if refused is not None:
        raise refused


def _show(done: "Report") -> None:
    from kb.service import import_report

    table(import_report.HEAD, import_report.rows(done))
    for reason, count in import_report.refusals(done):
        say(f"refused {count}: {reason} ({import_report.example(done, reason)})")
    counts = ", ".join(f"{number} {state}" for state, number in sorted(done.counts.items()))
    write(f"{counts or 'nothing found'}{'' if done.written else '; nothing was written (--write)'}")


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("import")(import_source)
