"""Which tool reads what from where."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kb.errors import ConfigError
from kb.service.kit.json_config import JsonConfig
from kb.service.kit.prose import OwnFile, Part
from kb.service.kit.splices import Editor
from kb.service.kit.toml_config import TomlConfig

Form = Callable[[str], Editor]
Server = dict[str, Any]
"""A command with its arguments and environment, as tools write it."""

_STARTING_S = 60
_JUDGING_S = 1_200


@dataclass(frozen=True)
class Place:
    """One file of a tool."""

    base: Path
    """The folder that must not be left."""
    relative: str
    form: Form
    """Makes the editor, given the file's name for errors."""
    is_server: bool
    """Whether the server stands in it; else it is text for the agent."""
    private: bool = False
    """Whether a new file is for its owner alone."""

    @property
    def shown(self) -> Path:
        """The file as people name it."""
        return self.base / self.relative


@dataclass(frozen=True)
class Tool:
    """One coding agent."""

    name: str
    title: str
    next_step: str
    head: str
    """Front matter of its text; may be empty."""
    user_head: str
    """The same where the text is for all projects."""
    typed: bool
    """Whether its configuration names the transport."""

    def server(self, command: Server) -> Server:
        """Return a command as this tool's configuration has it."""
        if self.name == "codex":  # ten seconds for a start and sixty for a call would be too little
            return {**command, "startup_timeout_sec": _STARTING_S, "tool_timeout_sec": _JUDGING_S}
        return {"type": "stdio", **command} if self.typed else dict(command)


_WHEN = (
    "Verified GPU kernels, memory-allocation strategies, communication schemes, tuned parameters and negative results. "
    "Use it before writing, tuning or porting a kernel, before choosing an allocation or communication scheme, when a "
    "model is to run faster on a device, and to report what came of it."
)
_SKILL = f"---\nname: kb\ndescription: {_WHEN}\n---\n\n"
_RULE = f"---\ndescription: {_WHEN}\nglobs:\nalwaysApply: false\n---\n\n"
_INSTRUCTIONS = f"---\nname: kb\ndescription: {_WHEN}\napplyTo: '**/*.{{py,cu,cuh,hip,cpp,cc,h,toml}}'\n---\n\n"

TOOLS = {
    one.name: one
    for one in (
        Tool("claude", "Claude Code", "start claude again; /mcp lists kb", _SKILL, _SKILL, typed=True),
        Tool("cursor", "Cursor", "reload the window; the settings list kb under MCP", _RULE, _SKILL, typed=False),
        Tool("codex", "Codex", "start codex again; /mcp lists kb", "", "", typed=False),
        Tool("vscode", "VS Code", "start kb with MCP: List Servers", _INSTRUCTIONS, _INSTRUCTIONS, typed=True),
    )
}
"""The tools by name."""


def tool(name: str) -> Tool:
    """Return a tool.

    Raises:
        ConfigError: It is not known.
    """
    if name not in TOOLS:
        hint = f"one of {', '.join(TOOLS)}; kb agent show prints what any other one needs"
        raise ConfigError(f"no tool is called {name[:40]!r}", hint=hint)
    return TOOLS[name]


def places(name: str, project: Path | None) -> tuple[Place, ...]:
    """Return the files of a tool, the server's first.

    Args:
        name: One of :data:`TOOLS`.
        project: Folder of a project; None for all projects of the user.
    """
    one = tool(name)
    make = {"claude": _claude, "cursor": _cursor, "codex": _codex, "vscode": _vscode}[one.name]
    return make(project)


def _home() -> Path:
    found = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home raises without HOME
    if not found.is_absolute():
        raise ConfigError("there is no home folder", hint="set HOME, or name a project: --project DIR")
    return found


def _named(variable: str) -> Path | None:
    found = os.environ.get(variable)
    return Path(found).expanduser() if found else None


def _servers(container: str) -> Form:
    return lambda file: JsonConfig(container, file)


def _own(name: str) -> Form:
    return lambda file: OwnFile(file, name)


def _claude(project: Path | None) -> tuple[Place, ...]:
    servers, skill = _servers("mcpServers"), "skills/kb/SKILL.md"
    if project is not None:
        text = Place(project, f".claude/{skill}", _own("claude"), is_server=False)
        return Place(project, ".mcp.json", servers, is_server=True), text
    named = _named("CLAUDE_CONFIG_DIR")
    base, folder = (_home(), ".claude/") if named is None else (named, "")
    return (
        Place(base, ".claude.json", servers, is_server=True, private=True),
        Place(base, f"{folder}{skill}", _own("claude"), is_server=False),
    )


def _cursor(project: Path | None) -> tuple[Place, ...]:
    base = project or _home()
    # Rules for all projects are kept in Cursor's settings, not in a file; skills are files.
    text = ".cursor/rules/kb.mdc" if project else ".cursor/skills/kb/SKILL.md"
    return (
        Place(base, ".cursor/mcp.json", _servers("mcpServers"), is_server=True, private=project is None),
        Place(base, text, _own("cursor"), is_server=False),
    )


def _codex(project: Path | None) -> tuple[Place, ...]:
    def part(file: str) -> Editor:
        return Part(file, "codex")

    if project is not None:
        config = Place(project, ".codex/config.toml", TomlConfig, is_server=True)
        return config, Place(project, "AGENTS.md", part, is_server=False)
    named = _named("CODEX_HOME")
    base, folder = (_home(), ".codex/") if named is None else (named, "")
    config = Place(base, f"{folder}config.toml", TomlConfig, is_server=True, private=True)
    return config, Place(base, f"{folder}AGENTS.md", part, is_server=False)


def _vscode(project: Path | None) -> tuple[Place, ...]:
    servers = _servers("servers")
    if project is not None:
        text = Place(project, ".github/instructions/kb.instructions.md", _own("vscode"), is_server=False)
        return Place(project, ".vscode/mcp.json", servers, is_server=True), text
    return (
        Place(_settings_base(), "Code/User/mcp.json", servers, is_server=True, private=True),
        Place(_home(), ".copilot/instructions/kb.instructions.md", _own("vscode"), is_server=False),
    )


def _settings_base() -> Path:
    if sys.platform == "darwin":
        return _home() / "Library" / "Application Support"
    return _named("APPDATA" if sys.platform == "win32" else "XDG_CONFIG_HOME") or _home() / ".config"
