"""``kb eval transfer``: how good predictions of latency on other devices and shapes are."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kb.cli.output import Json, say, table, write_json

if TYPE_CHECKING:
    from kb.service.transfer_study import Figures, Study

_HEADER = ["case", "from", "to", "family", "n", "median %", "p90 %", "inside %", "width", "mean width"]


def evaluate(
    data: Annotated[
        list[Path], typer.Argument(metavar="DATA...", help="Folders or tables (.csv, .parquet) of measured latencies.")
    ],
    calibrate: Annotated[
        str | None,
        typer.Option(
            metavar="N|RECORDS",
            help="So many measurements of each series on the target may be used, chosen by shape alone, or these.",
        ),
    ] = None,
    constants: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Constants to use, as --fit writes them.")
    ] = None,
    fit: Annotated[Path | None, typer.Option(metavar="FILE", help="Fit the constants on DATA and write them.")] = None,
    json: Json = False,
) -> None:
    """Predict left-out shapes and devices, and say how far off that is, beside three naive rules."""
    from kb.prediction.constants import FILE
    from kb.service.transfer_reading import calibration, fitted, measurements
    from kb.service.transfer_study import study
    from kb.values import plain

    samples, notes = measurements(data)
    for note in notes:
        say(note)
    if fit is not None:
        say(fitted(samples, fit, data=data))
        return
    found, _ = study(samples, calibration(calibrate), constants=constants or FILE)
    if json:
        write_json(plain(found))
        return
    _show(found)


def _show(found: "Study") -> None:
    from kb.service.transfer_study import RULES

    header = [*_HEADER, *(f"{rule} %" for rule in RULES)]
    table(header, [_row(one) for one in found.figures])
    table(header, [_row(one) for one in found.summaries])
    if found.flagged:
        table(["flagged on", "fault", "family", "n"], [[*map(str, one)] for one in found.flagged])
    if found.refused:
        table(["not predictable from", "to", "because", "n"], [[*map(str, one)] for one in found.refused])
    for device, count in found.unknown:
        say(f"{count:,} measurements left out: the hardware table lacks {device}, or a peak of it")
    for target, devices in found.constants:
        said = ", ".join(devices) or "none"
        warning = " (the target among them: its figures are no test)" if target in devices else ""
        say(f"{target}: constants fitted on {said}{warning}")


def _row(one: "Figures") -> list[str]:
    rules = [f"{median:.0f}/{p90:.0f}" for median, p90 in one.rules] or ["", "", ""]
    figures = [f"{one.median:.1f}", f"{one.p90:.1f}", f"{one.coverage:.0f}", f"{one.width_median:.2f}"]
    return [one.case, one.source, one.target, one.family, str(one.n), *figures, f"{one.width_mean:.2f}", *rules]


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("transfer")(evaluate)
