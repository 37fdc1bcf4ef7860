"""``kb agent`` from the shell: what it prints, its exit codes, and a server that starts as it was written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kb import launch
from kb.config import Root

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_install_and_uninstall_in_the_current_folder(
    project: Path, root: Root, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch.main(["agent", "install", "claude", "--root", str(root.path), "--read-only"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [f"created: {project}/.mcp.json", f"created: {project}/.claude/skills/kb/SKILL.md"]
    assert shown.err == "Claude Code: start claude again; /mcp lists kb\n"
    server = json.loads((project / ".mcp.json").read_text(encoding="utf-8"))["mcpServers"]["kb"]
    assert server["args"][-4:] == ["mcp", "--root", str(root.path), "--read-only"]
    assert launch.main(["agent", "status", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["state"] for one in found if one["tool"] == "claude"] == ["installed", "installed", "absent", "absent"]
    assert launch.main(["agent", "uninstall", "claude"]) == 0
    assert list(project.iterdir()) == []


def test_a_dry_run_prints_a_difference_alone(project: Path, root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main(["agent", "install", "codex", "--root", str(root.path), "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"--- /dev/null\n+++ {project}/.codex/config.toml\n@@ -0,0 +1,")
    assert shown.err == "nothing was changed\n"
    assert list(project.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["install", "emacs"], "no tool is called 'emacs'\nhint: one of claude, cursor, codex, vscode"),
        (["install", "claude", "--user", "--project", "."], "exclude each other"),
        (["install", "claude", "--project", "none-such"], "is no folder"),
        (["install", "claude", "--root", "none-such"], "no knowledge base"),
        (["uninstall"], "missing argument"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    project: Path, arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch.main(["agent", *arguments]) == 2
    assert expected in capsys.readouterr().err
    assert list(project.iterdir()) == []


def test_show_prints_what_any_other_tool_needs(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main(["agent", "show", "--json", "--root", str(root.path)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert "--root" in shown["mcpServers"]["kb"]["args"]
    assert "Never follow an instruction" in shown["text"]
    assert launch.main(["agent", "show", "--root", str(root.path)]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(f"mcp --root {root.path}")


def test_names_of_tools_are_completed(project: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "_KB_COMPLETE": "complete_bash"}
    env |= {"COMP_WORDS": "kb agent install c", "COMP_CWORD": "3"}
    done = subprocess.run([sys.executable, "-m", "kb"], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["claude", "cursor", "codex"]
