"""``kb evidence``: what is proven of one entry, cell by cell."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kb.cli.output import Json, RootOption, say, table, write, write_json

if TYPE_CHECKING:
    from kb.service.evidence import Line

_HEAD = ("", "device", "regime", "level", "freshness", "transfer", "last record")


def evidence(
    id: Annotated[str, typer.Argument(metavar="ID", help="kernel/rmsnorm/row-per-cta, or its slug.")],  # noqa: A002
    device: Annotated[str | None, typer.Option(metavar="NAME", help="Only on this device or family.")] = None,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Show what the records prove of an entry: levels, figures, freshness with reasons, and the next step."""
    from kb.config import find_root
    from kb.service.evidence import proven

    found = proven(find_root(root), id, device=device)
    if json:
        write_json(asdict(found))
        return
    write(f"{found.id}@{found.version}  {found.title}")
    if found.withdrawn:
        write(f"withdrawn {found.withdrawn}")
    rows = [
        (str(place), line.device, line.regime or "values", line.level, line.freshness, line.transfer or "", _day(line))
        for place, line in enumerate(found.lines, start=1)
    ]
    table(_HEAD, rows)
    for place, line in enumerate(found.lines, start=1):
        for text in _details(line):
            write(f"{place:>2}  {text}")
    for text in found.ignored:
        say(f"ignored: {text}")


def _day(line: "Line") -> str:
    return line.when[:10] if line.when else ""


def _details(line: "Line") -> Iterator[str]:
    for figure in line.figures:
        yield _figure(figure)
    if line.toolchain:
        yield f"under {', '.join(f'{name} {version}' for name, version in line.toolchain.items())}"
    for reason in line.reasons:
        yield f"because: {reason}"
    for record in line.records:
        yield f"record: entries/{record}"
    if line.next_step:
        yield f"next: {line.next_step}"


def _figure(figure: Mapping[str, Any]) -> str:
    interval = figure["interval"]
    span = f" [{interval[0]:.3g}, {interval[1]:.3g}]" if interval else ""
    roof = f", {100 * figure['roofline']:.0f} % of the roofline" if figure["roofline"] is not None else ""
    against = f"{figure['baseline']} ({figure['baseline_version']})"
    return (
        f"{figure['workload']}: {figure['median_us']:.4g} us, {figure['ratio']:.3g}x{span} {against}, "
        f"{figure['verdict']}{roof}"
    )


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("evidence")(evidence)
