"""``kb agent``: let a coding agent know of the knowledge base."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kb.cli import agent_status
from kb.cli.completing import agents
from kb.cli.output import RootOption, say, write

if TYPE_CHECKING:
    from kb.service.kit.edits import Change

app = typer.Typer(help="Let Claude Code, Cursor, Codex or VS Code use the knowledge base.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TOOL", help="claude, cursor, codex or vscode.", autocompletion=agents)]
Project = Annotated[
    Path | None, typer.Option("--project", metavar="DIR", help="For this project; else the current folder.")
]
User = Annotated[bool, typer.Option("--user", help="For all projects of this user.")]
Force = Annotated[bool, typer.Option("--force", help="Also over what is not ours, or was edited since.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the difference, change nothing.")]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Offer the agent nothing that writes.")]


def _folder(project: Path | None, user: bool) -> Path | None:
    from kb.errors import ConfigError

    if user and project is not None:
        raise ConfigError("--project and --user exclude each other", hint="give one")
    return None if user else (project or Path.cwd()).expanduser().absolute()


def _told(changes: "list[Change]", *, dry_run: bool) -> None:
    for one in changes:
        if dry_run and one.diff:
            for line in one.diff.splitlines():
                write(line)
        else:
            write(f"{one.what}: {one.file}")
            if one.kept is not None and not dry_run:
                write(f"kept: {one.kept} has what stood there")


@app.command("install")
def install(
    name: Name, project: Project = None, user: User = False, read_only: ReadOnly = False, force: Force = False,
    dry_run: DryRun = False, root: RootOption = None,
) -> None:  # fmt: skip
    """Write the tool's own MCP configuration and a short text for its agent; nothing else in the files changes."""
    from kb.config import find_root
    from kb.service import agent_kit
    from kb.service.kit.tools import tool

    server = agent_kit.command(find_root(root), read_only=read_only)
    _told(agent_kit.install(name, _folder(project, user), server, force=force, dry_run=dry_run), dry_run=dry_run)
    say("nothing was changed" if dry_run else f"{tool(name).title}: {tool(name).next_step}")


@app.command("uninstall")
def uninstall(
    name: Name, project: Project = None, user: User = False, force: Force = False, dry_run: DryRun = False
) -> None:
    """Take out again what install put in; what is not ours stays."""
    from kb.service import agent_kit

    changes = agent_kit.uninstall(name, _folder(project, user), force=force, dry_run=dry_run)
    _told(changes, dry_run=dry_run)
    if any(one.what == "left" for one in changes):
        say("left: it is not by kb agent install, or was edited since; --force takes out an edited text")


def register(parent: typer.Typer) -> None:
    """Add the commands to an application."""
    agent_status.register(app)
    parent.add_typer(app, name="agent")
