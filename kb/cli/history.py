"""``kb history``: the versions of an entry."""

from dataclasses import asdict
from typing import Annotated

import typer

from kb.cli.output import Json, RootOption, say, table, write_json


def history(
    entry_id: Annotated[str, typer.Argument(metavar="ID")], root: RootOption = None, json: Json = False
) -> None:
    """List the versions of an entry, newest first; older ones come from git."""
    from kb.config import find_root
    from kb.service.history import history as versions_of
    from kb.service.history import is_incomplete

    found = find_root(root)
    versions = versions_of(found, entry_id)
    if is_incomplete(found):
        say("note: this clone is shallow, so older versions may be missing: git fetch --unshallow")
    if json:
        write_json([asdict(one) for one in versions])
        return
    rows = [
        (str(v.version), (v.date_utc or "")[:10], (v.commit or "")[:10], v.subject or "", v.title) for v in versions
    ]
    table(("version", "date", "commit", "subject", "title"), rows)


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("history")(history)
