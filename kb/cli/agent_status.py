"""``kb agent show`` and ``kb agent status``: what agents are told, and which of them know."""

from pathlib import Path
from typing import Annotated

import typer

from kb.cli.output import Json, RootOption, table, write, write_json


def show(
    read_only: Annotated[bool, typer.Option("--read-only", help="Without what writes.")] = False,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Print the server's command and the text for the agent, for any other tool."""
    from kb.config import find_root
    from kb.service.agent_kit import command
    from kb.service.kit.words import words

    server, text = command(find_root(root), read_only=read_only), words(read_only=read_only)
    if json:
        write_json({"mcpServers": {"kb": server}, "text": text})
        return
    for line in (" ".join((server["command"], *server["args"])), "", *text.splitlines()):
        write(line)


def status(
    project: Annotated[Path | None, typer.Option("--project", metavar="DIR", help="Else the current folder.")] = None,
    json: Json = False,
) -> None:
    """Say which tools know of the knowledge base, here and for all projects."""
    from kb.service import agent_kit

    found = agent_kit.status((project or Path.cwd()).expanduser().absolute())
    named = {"ours": "installed", "same": "installed"}
    if json:
        write_json([{**vars(one), "state": named.get(one.state, one.state), "file": str(one.file)} for one in found])
        return
    rows = [(one.tool, one.scope, named.get(one.state, one.state), str(one.file), one.problem or "") for one in found]
    table(("tool", "for", "state", "file", "problem"), rows)


def register(app: typer.Typer) -> None:
    """Add the commands to a group."""
    app.command("show")(show)
    app.command("status")(status)
