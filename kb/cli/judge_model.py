"""``kb judge-model``: hold a whole model against its original weights."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kb.cli.judge import NOT_ACCEPTED
from kb.cli.output import Json, RootOption, say, write, write_json

if TYPE_CHECKING:
    from kb.validators.runtime.report import Report


def judge_model(
    reference: Annotated[Path, typer.Option(metavar="DIR", help="The original: a transformers model directory.")],
    candidate: Annotated[
        Path | None, typer.Option(metavar="DIR|FILE", help="A model directory, or a file with load(folder).")
    ] = None,
    entry: Annotated[
        str | None, typer.Option(metavar="ID", help="A combination instead: what comes out is filed as a record.")
    ] = None,
    precision: Annotated[
        str, typer.Option(help="Declared weight format: bfloat16, int8, int4, float8_e4m3fn, nvfp4.")
    ] = "bfloat16",
    weights: Annotated[
        Path | None, typer.Option(metavar="DIR", help="What load(folder) is given; else --reference.")
    ] = None,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Judge a whole model: does it generate, and are its distributions those of the original BF16 weights?"""
    from kb.config import find_root
    from kb.errors import ConfigError
    from kb.service import model_judging

    if (candidate is None) == (entry is None):
        raise ConfigError("expected either --candidate or --entry", hint="kb judge-model --help")
    progress, record = (None if json else say), None
    if candidate is not None:
        report = model_judging.judge_model(
            reference, candidate, precision=precision, weights=weights, progress=progress
        )
    else:
        report, filed = model_judging.judge_combination(
            find_root(root), str(entry), reference, precision=precision, progress=progress
        )
        record = filed.path
    if json:
        write_json(report.to_json() | {"record": record})
    else:
        _show(report, record)
    if report.verdict != "accepted":
        raise typer.Exit(NOT_ACCEPTED)


def _show(report: "Report", record: str | None) -> None:
    write(f"{report.verdict}: {len(report.cases)} texts" + (f"; {record}" if record else ""))
    for detail in report.details:
        write(f"  {detail}")
    for name, row in (report.model or {}).items():
        if isinstance(row, dict) and "kl_mean" in row:
            figures = f"KL mean {row['kl_mean']:.2e}  p90 {row['kl_p90']:.2e}  max {row['kl_max']:.2e}"
            write(f"  {name:7} {figures}" + (f"  top-1 {row['agreement']:.1%}" if "agreement" in row else ""))


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("judge-model")(judge_model)
