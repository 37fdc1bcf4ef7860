"""``kb target from-trace``: a target from a profiler's trace."""

from pathlib import Path
from typing import Annotated

import typer

from kb.cli.output import Json, RootOption, say
from kb.cli.target_new import EntryId, Model, Output, Write, deliver, device_names, phases, precisions


def from_trace(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE", help="Chrome JSON of torch's profiler (.gz too), Nsight SQLite or CSV.")
    ],
    device: Annotated[
        str | None, typer.Option(help="Where it was taken; else as the trace says.", autocompletion=device_names)
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=4096, help="Devices that worked together.")] = 1,
    precision: Annotated[
        str | None, typer.Option(help="In one word; else that of most of the time.", autocompletion=precisions)
    ] = None,
    phase: Annotated[
        str | None, typer.Option(help="prefill, decode or vision, if it is one.", autocompletion=phases)
    ] = None,
    batch: Annotated[int, typer.Option(min=1, max=1_000_000, help="Sequences, or images, a step.")] = 1,
    prompt: Annotated[int | None, typer.Option(min=1, help="Tokens of a prompt.")] = None,
    context: Annotated[int | None, typer.Option(min=1, help="Cached tokens while decoding.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps that it covers; else as it marks them.")] = None,
    rules: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Rules of your own for kernel names; they come first.")
    ] = None,
    model: Model = None,
    entry_id: EntryId = None,
    output: Output = None,
    write_it: Write = False,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Make a target from a trace: operator rows with measured shares of time; what cannot be named is listed."""
    from kb.service.profiling import Asked
    from kb.service.profiling import from_trace as traced

    asked = Asked(device, count, model, precision, phase, batch, prompt, context, steps, rules)
    found = traced(trace, asked, entry_id=entry_id)
    deliver(found.drafted, output=output, file=write_it, root=root, json=json)
    say(f"{100 * found.named_share:.1f} % of {found.total_us / 1e3:,.1f} ms named ({found.source})")
    if found.cleaned:
        say(f"{found.cleaned} names had characters that cannot be printed: they count without them")
    for one in found.drafted.target.unnamed:
        say(f"not named: {100 * one.share:.2f} % {one.name}")
        if one.name.startswith("Torch-Compiled Region"):
            say("  torch._inductor.config.cpp.enable_kernel_profile = True, before compiling, shows what ran inside")


def register(app: typer.Typer) -> None:
    """Add the command to a group."""
    app.command("from-trace")(from_trace)
