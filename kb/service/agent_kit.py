"""Let a coding agent know of ``kb``: its own configuration and a short text, put in and taken out again.

Nothing else in a file is touched. What is put in is noted (offsets and digests, no text), so that taking it out gives
back every byte, as long as nobody changed the file in between; after that, only what is ours is taken out.
"""

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import kb
from kb.config import Root
from kb.errors import ConfigError, KbError
from kb.service.kit import receipts
from kb.service.kit.edits import Change, Edit, change, opened, put, take, write, write_back
from kb.service.kit.ours import NAME
from kb.service.kit.receipts import Receipt
from kb.service.kit.splices import Editor, State
from kb.service.kit.tools import TOOLS, Place, Server, places, tool
from kb.service.kit.words import words


@dataclass(frozen=True)
class Standing:
    """What stands in one file of one tool."""

    tool: str
    scope: str
    """``project`` or ``user``."""
    file: Path
    state: State
    problem: str | None
    """Why it cannot be read, or will not work; None if all is well."""


def command(root: Root, *, read_only: bool = False, branch: str | None = None, bare: bool = False) -> Server:
    """Return what starts the server of a knowledge base from anywhere: absolute paths alone.

    Args:
        root: The knowledge base; the starter is found again by the installation itself.
        read_only: Offer nothing that writes.
        branch: Where submissions go; None for the usual one.
        bare: Search by words alone.
    """
    program, given = _program()
    given += ["mcp"]
    given += [] if root.packaged else ["--root", str(root.path)]
    given += ["--read-only"] if read_only else []
    given += ["--branch", branch] if branch else []
    given += ["--bare"] if bare else []
    made: Server = {"command": program, "args": given}
    package = str(Path(kb.__file__).resolve().parent.parent)
    if package in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        made["env"] = {"PYTHONPATH": package}  # it is run from a folder that nothing else would lead to
    return made


def _program() -> tuple[str, list[str]]:
    """Return the console script that runs or lies beside the interpreter; without one, the interpreter."""
    called = shutil.which(sys.argv[0]) if Path(sys.argv[0]).name in ("kb", "kb.exe") else None
    beside = shutil.which("kb", path=str(Path(sys.executable).parent))
    found = called or beside
    if found is not None:
        return os.path.abspath(found), []  # noqa: PTH100 - links stay: they name the environment
    # -P: a folder called kb in the agent's project must not be run in our place.
    return sys.executable, ["-P", "-m", "kb"]


def install(
    name: str, project: Path | None, server: Server, *, force: bool = False, dry_run: bool = False
) -> list[Change]:
    """Write a tool's configuration and the text for its agent.

    Args:
        name: ``claude``, ``cursor``, ``codex`` or ``vscode``.
        project: Folder of a project; None for all projects of the user.
        server: What starts the server, from :func:`command`.
        force: Also over a server or a text of the same name that is somebody else's, or was edited.
        dry_run: Change nothing.

    Returns:
        What was done to each file, or would be.

    Raises:
        ConfigError: A file is not what its format says, leads out of its folder, or has something of this name that
            is not ours. Nothing was changed then.
    """
    text = words(read_only="--read-only" in server["args"])
    one = tool(name)
    head = one.head if project else one.user_head

    def edit(place: Place, known: dict[str, Receipt]) -> Edit:
        return put(place, one.server(server) if place.is_server else head + text, known, force=force)

    return _carried_out(_checked(name, project), edit, dry_run=dry_run)


def uninstall(name: str, project: Path | None, *, force: bool = False, dry_run: bool = False) -> list[Change]:
    """Take out what :func:`install` put in; what is not ours stays.

    Args:
        name: As for :func:`install`.
        project: As for :func:`install`.
        force: Also a text that was edited since.
        dry_run: Change nothing.

    Returns:
        What was done to each file, or would be.

    Raises:
        ConfigError: As for :func:`install`.
    """

    def edit(place: Place, known: dict[str, Receipt]) -> Edit:
        return take(place, known, force=force)

    return _carried_out(_checked(name, project)[::-1], edit, dry_run=dry_run)


def status(project: Path) -> list[Standing]:
    """Say what stands where, for every tool.

    Args:
        project: Folder of a project.
    """
    return [
        _standing(name, scope, place)
        for name in TOOLS
        for scope, folder in (("project", project), ("user", None))
        for place in places(name, folder)
    ]


def _checked(name: str, project: Path | None) -> tuple[Place, ...]:
    if project is not None and not project.is_dir():
        raise ConfigError(f"{project} is no folder", hint="--project DIR, or --user")
    return places(name, project)


def _carried_out(
    where: Sequence[Place], edit: Callable[[Place, dict[str, Receipt]], Edit], *, dry_run: bool
) -> list[Change]:
    if dry_run:
        known = receipts.known()
        return [change(edit(place, known)) for place in where]
    with receipts.kept() as known:
        edits = [edit(place, known) for place in where]  # all of them are sound before any is written
        done: list[Edit] = []
        try:
            for one in edits:
                write(one, known)
                done.append(one)
        except KbError:
            for one in reversed(done):
                write_back(one, known)
            raise
    return [change(one) for one in edits]


def _standing(name: str, scope: str, place: Place) -> Standing:
    try:
        _, editor, _, _, text = opened(place)
        state = editor.state(text, None)
    except KbError as error:
        return Standing(name, scope, place.shown, "foreign", error.message)
    return Standing(name, scope, place.shown, state, _problem(editor, text, state) if place.is_server else None)


def _problem(editor: Editor, text: str, state: State) -> str | None:
    """Say why a server that stands there cannot start, or None."""
    server = editor.servers(text).get(NAME)
    if state != "ours" or not isinstance(server, Mapping):
        return None
    program = str(server["command"])
    if shutil.which(program) is None:
        return f"{program} is not there any more: install again"
    given = [str(one) for one in server["args"]]
    base = given[given.index("--root") + 1] if "--root" in given[:-1] else None
    if base is not None and not (Path(base) / "entries").is_dir():
        return f"there is no knowledge base at {base} any more: install again"
    return None
