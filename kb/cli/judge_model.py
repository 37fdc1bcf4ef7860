"""``kb judge-model``: hold a whole model against its original weights."""

from pathlib import Path
from typing import Annotated

import typer

from kb.cli.judge import NOT_ACCEPTED
from kb.cli.output import Json, say, write, write_json


def judge_model(
    reference: Annotated[
        Path, typer.Option("--reference", metavar="DIR", help="The original: a transformers directory.")
    ],
    candidate: Annotated[
        Path, typer.Option("--candidate", metavar="DIR|FILE", help="A model directory, or a file with load(folder).")
    ],
    precision: Annotated[
        str, typer.Option(help="Declared weight format: bfloat16, int8, int4, float8_e4m3fn, nvfp4.")
    ] = "bfloat16",
    weights: Annotated[
        Path | None, typer.Option(metavar="DIR", help="What load(folder) is given; else --reference.")
    ] = None,
    json: Json = False,
) -> None:
    """Judge a whole model: does it generate, and are its distributions those of the original BF16 weights?"""
    from kb.service.model_judging import judge_model as judge

    report = judge(reference, candidate, precision=precision, weights=weights, progress=None if json else say)
    if json:
        write_json(report.to_json())
    else:
        write(f"{report.verdict}: {len(report.cases)} texts")
        for detail in report.details:
            write(f"  {detail}")
        for name, row in report.kernels["model"].items():
            if isinstance(row, dict) and "kl_mean" in row:
                figures = f"KL mean {row['kl_mean']:.2e}  p90 {row['kl_p90']:.2e}  max {row['kl_max']:.2e}"
                write(f"  {name:7} {figures}" + (f"  top-1 {row['agreement']:.1%}" if "agreement" in row else ""))
    if report.verdict != "accepted":
        raise typer.Exit(NOT_ACCEPTED)


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("judge-model")(judge_model)
