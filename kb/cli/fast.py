"""``search``, ``show`` and ``list`` as help and completion see them; the console script answers most calls itself."""

from typing import Annotated

import typer

from kb.cli.output import Json, RootOption, say, write, write_json

_Query = Annotated[list[str] | None, typer.Argument(metavar="QUERY", help="Any words: nvfp4 moe grouped gemm.")]
_Kind = Annotated[
    str | None, typer.Option(help="kernel, allocation, comm, config, technique, combination, target, campaign")
]
_Operator = Annotated[str | None, typer.Option(help="An operator (rmsnorm) or a family of them (moe).")]
_Dtype = Annotated[str | None, typer.Option(help="A dtype in any spelling: nvfp4, bf16, fp8.")]
_Arch = Annotated[str | None, typer.Option(help="An architecture: sm_90, gfx942.")]
_Device = Annotated[str | None, typer.Option(help="A device or family: 'NVIDIA H200', H100, hopper.")]
_Outcome = Annotated[str | None, typer.Option(help="works, regression, no_effect, incorrect, infeasible, inconclusive")]
_Withdrawn = Annotated[bool, typer.Option("--withdrawn", help="Show withdrawn entries as well.")]
_Limit = Annotated[int, typer.Option(min=1, help="Most hits to print.")]
_Semantic = Annotated[bool, typer.Option("--semantic", help="Use embeddings too (extra: semantic).")]


def search(
    query: _Query = None,
    kind: _Kind = None,
    operator: _Operator = None,
    dtype: _Dtype = None,
    arch: _Arch = None,
    device: _Device = None,
    outcome: _Outcome = None,
    withdrawn: _Withdrawn = False,
    limit: _Limit = 10,
    semantic: _Semantic = False,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Search the knowledge base in the words you use."""
    from kb import plain
    from kb.config import find_root
    from kb.service.searching import Filters, search_root

    filters = Filters(kind, operator, dtype, arch, device, outcome, withdrawn)
    answer = search_root(find_root(root), " ".join(query or []), filters=filters, limit=limit, semantic=semantic)
    if json:
        write_json(answer.to_json())
        return
    for line in plain.answer(answer, width=plain.terminal_width()):
        write(line)
    for note in answer.notes:
        say(f"note: {note}")


def list_entries(
    kind: _Kind = None,
    operator: _Operator = None,
    dtype: _Dtype = None,
    arch: _Arch = None,
    device: _Device = None,
    outcome: _Outcome = None,
    withdrawn: _Withdrawn = False,
    evidence: Annotated[bool, typer.Option("--evidence", help="What is proven, where, and the best figure.")] = False,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """List the entries of the knowledge base."""
    from kb import plain
    from kb.config import find_root
    from kb.service.searching import Filters, list_root

    filters = Filters(kind, operator, dtype, arch, device, outcome, withdrawn)
    entries = list_root(find_root(root), filters, figures=evidence)
    if json:
        write_json(entries)
        return
    lines = plain.evidence_listing if evidence else plain.listing
    for line in lines(entries, width=plain.terminal_width()):
        write(line)


def show(
    id: Annotated[str, typer.Argument(metavar="ID[@VERSION]", help="kernel/rmsnorm/row-per-cta, or its slug.")],  # noqa: A002
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Show one entry: facts, files, prose; an older version comes from git."""
    from kb import plain
    from kb.config import find_root
    from kb.service.searching import show_root

    found = show_root(find_root(root), id)
    if json:
        write_json(found)
        return
    for line in plain.entry(found, width=plain.terminal_width()):
        write(line)


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command("search")(search)
    app.command("show")(show)
    app.command("list")(list_entries)
