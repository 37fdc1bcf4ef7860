"""``kb judge``: have a candidate judged for values."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kb.cli.output import Json, say, write, write_json

NOT_ACCEPTED = 20
"""Exit code of a verdict that is not ``accepted``."""


def judge(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A Python file with run(...) of the operator's signature.")
    ],
    operator: Annotated[str, typer.Option("--operator", metavar="OP", help="What it should compute: kb operators.")],
    device: Annotated[str, typer.Option(help="Where to judge: cpu or cuda:N.")] = "cpu",
    dtype: Annotated[list[str] | None, typer.Option(help="Judge these dtypes only; may be repeated.")] = None,
    ghosts: Annotated[bool, typer.Option(help="Replay with each kernel left out in turn.")] = True,
    json: Json = False,
) -> None:
    """Judge a candidate: accepted, rejected or needs_review, with reasons. It runs in a sandbox of its own."""
    from kb.service.judging import judge_file

    report = judge_file(operator, file, device=device, dtypes=dtype, ghosts=ghosts, progress=say if not json else None)
    if json:
        write_json(report.to_json())
    else:
        write(f"{report.verdict}: {operator}, {len(report.cases)} calls")
        for detail in report.details:
            write(f"  {detail}")
        worst = max((c.max_normalised for c in report.cases if c.max_normalised is not None), default=None)
        if report.memory is not None:
            _write_memory(report.memory)
        elif worst is not None:
            write(f"  worst error: {worst:.3g} of its bound")
        if report.delegates:
            write(f"  delegates to: {', '.join(report.delegates)}")
    if report.verdict != "accepted":
        raise typer.Exit(NOT_ACCEPTED)


def _write_memory(memory: Mapping[str, Any]) -> None:
    """Write the medians of an allocation strategy's figures beside those of its baselines."""
    if memory.get("laws"):
        write(f"  serves: {', '.join(memory['laws'])}")
    shown = (
        ("fragmentation", "memory taken over the lower bound"),
        ("full_at", "of the capacity in use when memory ran out"),
        ("padded", "of the rows computed in vain"),
        ("us_per_operation", "us an operation"),
    )
    for name, meaning in shown:
        value = memory.get(f"median_{name}")
        if value is not None:
            write(f"  {value:.3g} {meaning}")
    for name, value in sorted(memory.get("baselines", {}).items()):
        write(f"  {value:.3g} memory taken over the lower bound by {name.replace('_', ' ')}")


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("judge")(judge)
