"""Files of coding agents to try the kit on."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kb.service.kit import jsonc

SERVER = {"command": "/opt/kb/bin/kb", "args": ["mcp", "--root", "/srv/kb"]}
READ_ONLY = {"command": "/opt/kb/bin/kb", "args": ["mcp", "--root", "/srv/kb", "--read-only"]}
OTHER = {"command": "npx", "args": ["-y", "kb-of-somebody-else"]}
FILES = {
    "claude": (".mcp.json", ".claude/skills/kb/SKILL.md"),
    "cursor": (".cursor/mcp.json", ".cursor/rules/kb.mdc"),
    "codex": (".codex/config.toml", "AGENTS.md"),
    "vscode": (".vscode/mcp.json", ".github/instructions/kb.instructions.md"),
}


def empty_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, beside an empty home."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def write(file: Path, text: str) -> Path:
    """Write a file with its folders, line ends as they are."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode("utf-8"))
    return file


def tree(folder: Path) -> dict[str, bytes | None]:
    """Return all files with their bytes, and all folders."""
    return {str(one.relative_to(folder)): one.read_bytes() if one.is_file() else None for one in folder.rglob("*")}


def comments(text: str) -> list[str]:
    """Return the comments of a text of JSON."""
    text = text.lstrip("\ufeff")
    return [text[one.start : one.end] for one in jsonc.tokens(text, 0, len(text), "it") if one.kind == "comment"]


def server_in(file: Path) -> Any:  # noqa: ANN401 - what the tool would read
    """Return the server that a tool would read from a file."""
    text = file.read_text(encoding="utf-8")
    found = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    return next(found[key]["kb"] for key in ("mcpServers", "servers", "mcp_servers") if key in found)
