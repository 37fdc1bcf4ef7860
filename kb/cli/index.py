"""``kb index``: bring the catalogue up to date by hand."""

from typing import TYPE_CHECKING, Annotated

import typer

from kb.cli.output import Json, RootOption, progress, say, write, write_json

if TYPE_CHECKING:
    from kb.config import Root


def index(
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make it anew in any case.")] = False,
    embeddings: Annotated[
        bool,
        typer.Option("--embeddings/--no-embeddings", help="Embed new entries, if an embedder is installed."),
    ] = True,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Bring catalogue and embeddings up to date. A search does it by itself; nothing is lost if they are deleted."""
    from kb.config import find_root
    from kb.service.indexing import left_out, update

    found = find_root(root)
    with progress("indexing") as show:
        done = update(found, rebuild=rebuild, progress=show)
    problems = left_out(done.file)
    embedded = _embed(found, rebuild=rebuild) if embeddings else None
    if json:
        rows = [{"where": one.where, "message": one.message} for one in problems]
        write_json(
            {"catalogue": str(done.file), "updated": done.report is not None, "left_out": rows, "embedded": embedded}
        )
        return
    write(f"{done.file}: {'up to date already' if done.report is None else 'brought up to date'}")
    if embedded is not None:
        write(f"{embedded} entries have embeddings")
    for problem in problems:
        say(f"left out: {problem.message}")
    if problems:
        say("hint: kb check")


def _embed(root: "Root", *, rebuild: bool) -> int | None:
    """Embed what is new and bring Chroma up to date; None, and a word about it, where no embedder is installed."""
    from kb.errors import EmbedderUnavailableError
    from kb.service.embedding import ensure_vectors, sync_chroma

    try:
        with progress("embedding") as show:
            vectors = ensure_vectors(root, rebuild=rebuild, progress=show)
        with progress("filling Chroma") as show:
            sync_chroma(root, rebuild=rebuild, progress=show)
    except EmbedderUnavailableError as error:
        say(f"no embeddings: {error.message}")
        return None
    return len(vectors.ids)


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("index")(index)
