"""``kb mcp``: the endpoint for coding agents."""

import gc
from typing import Annotated

import typer

from kb.cli.output import RootOption
from kb.errors import ConfigError

_HINT = 'pip install "kernel-kb[serve]"'


def mcp(
    bare: Annotated[
        bool, typer.Option("--bare", help="Search by words alone, also where embeddings are installed.")
    ] = False,
    root: RootOption = None,
) -> None:
    """Serve search and get to a coding agent, over stdin and stdout (Model Context Protocol)."""
    from kb.config import find_root

    found = find_root(root)
    gc.disable()  # the SDK builds thousands of types; collecting between them frees nothing and takes 0.1 s
    try:
        from kb.server.app import Searcher, make_server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        raise ConfigError("the MCP SDK is not installed", hint=_HINT) from error
    finally:
        gc.enable()
    make_server(Searcher(found, semantic=not bare)).run("stdio")


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("mcp")(mcp)
