"""``kb serve``: the HTTP endpoint, for programs, for the web page and for agents at /mcp."""

from typing import Annotated

import typer

from kb.cli.output import RootOption, say


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; any but loopback needs tokens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free one.")] = 8642,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer nothing that writes or judges.")] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:PORT]", help="A further name that clients call it by; may be repeated."),
    ] = None,
    bare: Annotated[
        bool, typer.Option("--bare", help="Search by words alone, also where embeddings are installed.")
    ] = False,
    rate: Annotated[
        float, typer.Option(min=0, help="Requests a second of one token or address; 0 for no limit.")
    ] = 500.0,
    branch: Annotated[str, typer.Option(metavar="NAME", help="Branch that submissions are committed to.")] = (
        "submissions"
    ),
    root: RootOption = None,
) -> None:
    """Serve the knowledge base over HTTP: JSON at /v1, the web page at /, agents at /mcp."""
    from kb.config import find_root
    from kb.errors import ConfigError

    found = find_root(root)
    try:
        from kb.server.http.running import run
        from kb.server.http.settings import Limits, Settings
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("fastapi", "starlette", "uvicorn", "prometheus_client", "mcp", "mcp_types", "h11"):
            raise
        raise ConfigError(f"{missing} is not installed", hint='pip install "kernel-kb[serve]"') from error
    limits = Limits(rate=rate, burst=max(1, int(2 * rate)))
    settings = Settings(host, port, read_only, tuple(allow_host or ()), not bare, limits, branch)
    run(found, settings, say=say)


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("serve")(serve)
