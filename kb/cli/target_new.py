"""``kb target new``: a target from a model's config."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kb.cli.output import Json, RootOption, say, write, write_json

if TYPE_CHECKING:
    from kb.service.targets import Drafted

Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write the entry's folder below DIR.")
]
Write = Annotated[bool, typer.Option("--write", help="File it in the knowledge base.")]
EntryId = Annotated[str | None, typer.Option("--id", metavar="ID", help="target/MODEL/SLUG; else made up.")]
Model = Annotated[str | None, typer.Option("--model", metavar="NAME", help="The model's name; else found.")]

_PRECISIONS = ("bfloat16", "float16", "fp8", "fp8-block", "nvfp4", "mxfp4")
_PHASES = ("prefill", "decode", "vision")


def device_names(incomplete: str) -> list[str]:
    """Return devices that start as typed."""
    from kb.hardware import known_names

    return [name for name in known_names() if name.lower().startswith(incomplete.lower())]


def precisions(incomplete: str) -> list[str]:
    """Return precisions that start as typed."""
    return [one for one in _PRECISIONS if one.startswith(incomplete)]


def phases(incomplete: str) -> list[str]:
    """Return phases that start as typed."""
    return [one for one in _PHASES if one.startswith(incomplete)]


def deliver(drafted: "Drafted", *, output: Path | None, file: bool, root: str | None, json: bool) -> None:
    """Write a draft where it was asked for: a folder, the knowledge base, or stdout."""
    from kb.config import find_root
    from kb.service.targets import file_draft, write_draft

    done: dict[str, object] = {"id": drafted.id, "target": drafted.target.model_dump(mode="json")}
    if output is not None:
        done["folder"] = str(write_draft(drafted, output))
    if file:
        done["filed"] = file_draft(drafted, find_root(root)).reference
    if json:
        write_json(done)
    elif output is None and not file:
        for line in drafted.facts.splitlines():
            write(line)
        say(f"this is {drafted.id}, not written; -o DIR writes it, --write files it")
    else:
        for what in ("folder", "filed"):
            if what in done:
                write(f"{what}: {done[what]}")


def new(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.json", help="config.json of a model.")],
    device: Annotated[str, typer.Option(help="B200, H100, sm_90 …", autocompletion=device_names)],
    count: Annotated[int, typer.Option(min=1, max=4096, help="Devices every layer is divided over.")] = 1,
    precision: Annotated[
        str | None, typer.Option(help=f"{', '.join(_PRECISIONS)}; else as the config says.", autocompletion=precisions)
    ] = None,
    batch: Annotated[int, typer.Option(min=1, max=1_000_000, help="Sequences, or images, a step.")] = 1,
    prompt: Annotated[int, typer.Option(min=1, max=100_000_000, help="Tokens of a prompt.")] = 1024,
    context: Annotated[int, typer.Option(min=1, max=100_000_000, help="Cached tokens while decoding.")] = 4096,
    phase: Annotated[
        list[str] | None, typer.Option(help="prefill, decode or vision; several times.", autocompletion=phases)
    ] = None,
    model: Model = None,
    entry_id: EntryId = None,
    output: Output = None,
    write_it: Write = False,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Make a target from a Hugging Face config.json: operators with shapes, calls and estimated shares of time."""
    from kb.service.targets import from_config
    from kb.targeting.making import Deployment

    asked = Deployment(device, count, precision, batch, prompt, context, tuple(dict.fromkeys(phase or ())))
    drafted = from_config(config, asked, model=model, entry_id=entry_id)
    deliver(drafted, output=output, file=write_it, root=root, json=json)


def register(app: typer.Typer) -> None:
    """Add the command to a group."""
    app.command("new")(new)
