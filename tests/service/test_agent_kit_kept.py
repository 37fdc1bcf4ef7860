"""What ``--force`` does away with is kept where its owner finds it again."""

import json
from pathlib import Path

import pytest

from kb import launch
from kb.config import Root, config_folder
from kb.errors import ConfigError
from kb.service import agent_kit
from kb.service.kit.tools import TOOLS
from tests.service.agent_files import FILES, OTHER, SERVER, empty_project, server_in, tree, write


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return empty_project(tmp_path, monkeypatch)


def copies() -> list[Path]:
    return sorted((config_folder() / "kept").glob("*"))


def foreign(name: str) -> str:
    """Return a configuration that has a server of this name which is not ours, with a secret."""
    if name == "codex":
        return '[mcp_servers.kb]\ncommand = "npx"\nenv = { KEY = "secret" }\n'
    key = "servers" if name == "vscode" else "mcpServers"
    return json.dumps({key: {"kb": {**OTHER, "env": {"KEY": "secret"}}, "z": {}}})


@pytest.mark.parametrize("name", list(TOOLS))
def test_a_forced_install_keeps_the_file_as_it_was_for_its_owner_alone(project: Path, name: str) -> None:
    file = project / FILES[name][0]
    before = write(file, foreign(name)).read_bytes()
    changes = agent_kit.install(name, project, SERVER, force=True)
    assert server_in(file)["args"] == SERVER["args"]
    (copy,) = copies()
    assert copy.read_bytes() == before
    assert copy.name.endswith(f"-{file.name}")
    assert copy.stat().st_mode & 0o077 == 0
    assert [one.kept for one in changes] == [copy, None]
    agent_kit.uninstall(name, project)
    assert copy.read_bytes() == before


def test_what_is_ours_or_stays_is_not_kept(project: Path) -> None:
    write(project / ".mcp.json", '{"mcpServers": {"z": {}}}')
    agent_kit.install("claude", project, SERVER)
    agent_kit.install("claude", project, SERVER, force=True)
    agent_kit.uninstall("claude", project, force=True)
    assert copies() == []
    write(project / ".mcp.json", foreign("claude"))
    before = tree(project)
    with pytest.raises(ConfigError):
        agent_kit.install("claude", project, SERVER)
    agent_kit.install("claude", project, SERVER, force=True, dry_run=True)
    assert tree(project) == before
    assert copies() == []


def test_an_edited_text_that_is_taken_out_by_force_is_kept(project: Path) -> None:
    agent_kit.install("claude", project, SERVER)
    file = project / FILES["claude"][1]
    edited = file.read_text(encoding="utf-8").replace("When to ask it", "When I say so")
    write(file, edited)
    agent_kit.uninstall("claude", project, force=True)
    assert not file.exists()
    (copy,) = copies()
    assert copy.read_text(encoding="utf-8") == edited


def test_where_no_copy_can_be_kept_nothing_is_replaced(project: Path) -> None:
    write(project / ".mcp.json", foreign("claude"))
    before = tree(project)
    config_folder().mkdir(parents=True, exist_ok=True)
    write(config_folder() / "kept", "a file where a folder should be")
    with pytest.raises(ConfigError):
        agent_kit.install("claude", project, SERVER, force=True)
    assert tree(project) == before


def test_the_command_says_where_the_copy_lies(
    project: Path, root: Root, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    write(project / ".mcp.json", foreign("claude"))
    assert launch.main(["agent", "install", "claude", "--force", "--root", str(root.path)]) == 0
    (copy,) = copies()
    assert f"kept: {copy} has what stood there" in capsys.readouterr().out.splitlines()
