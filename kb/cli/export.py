"""``kb export``: write entries in the format of another project."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kb.cli.output import Json, RootOption, progress, say, write, write_json


def formats(incomplete: str) -> list[str]:
    """Return formats that can be written and start as typed."""
    from kb.importers.registry import exporters

    return [one for one in exporters() if one.startswith(incomplete)]


WRITTEN = (
    "sglang-fused-moe, vllm-fused-moe, sglang-block-gemm, vllm-block-gemm, keyed-gemm, vllm-mamba, sglang-lora, "
    "sglang-base-gemm, sglang-moe-front, sglang-collective, hf-kernels, openevolve, flashinfer-trace"
)
"""Stated here, because asking for them imports all importers, and help has to be fast; a test holds it to them."""


def operators(incomplete: str) -> list[str]:
    """Return operators that start as typed."""
    from kb.validators.operators.names import NAMES

    return [one for one in NAMES if one.startswith(incomplete)]


def export(
    form: Annotated[
        str,
        typer.Argument(metavar="FORMAT", help=f"A format that can be written: {WRITTEN}.", autocompletion=formats),
    ],
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Entries; all that fit if none.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="A new folder.")] = Path("export"),
    operator: Annotated[
        str | None,
        typer.Option(metavar="OP", help="Entries of an operator, best proven first.", autocompletion=operators),
    ] = None,
    top: Annotated[int | None, typer.Option(metavar="N", min=1, help="Most entries of the operator.")] = None,
    device: Annotated[str | None, typer.Option(metavar="D", help="Device whose evidence counts.")] = None,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Write entries in the format of another project, into a new folder, with their licenses in MANIFEST.jsonl.

    Ends with 4, and writes nothing, if none of the entries can be written in the format.
    """
    from kb.config import find_root
    from kb.service.exporting import Choice
    from kb.service.exporting import export as exported

    with progress("exporting") as show:
        made = exported(
            find_root(root), form, ids or [], output, choice=Choice(operator, top, device), progress=_Telling(show)
        )
    if json:
        write_json(asdict(made))
        return
    for one in made.left_out:
        say(f"{'left out' if one.refused else 'note'}: {one.path}: {one.reason}")
    write(f"{made.folder}: {len(made.files)} files; {made.manifest} has their licenses and origins")


class _Telling:
    """Says a stage in one line as it begins: to load what it needs (torch, for references) can take half a minute."""

    def __init__(self, show: Callable[[int, int], None]) -> None:
        self._show = show
        self._said: set[str] = set()

    def __call__(self, stage: str, done: int, total: int) -> None:
        self._show(done, total)
        if stage not in self._said and stage != "reading entries":
            self._said.add(stage)
            say(f"{stage}: {total}")


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("export")(export)
