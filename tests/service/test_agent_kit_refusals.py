"""What the agent kit refuses leaves every file as it was."""

import os
from pathlib import Path
from typing import Any

import pytest

from kb.errors import ConfigError
from kb.service import agent_kit
from tests.service.agent_files import SERVER, empty_project, server_in, tree, write


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return empty_project(tmp_path, monkeypatch)


INVALID = [
    ('{"mcpServers": ', "no JSON"),
    ('{"a": 1} {"b": 2}', "something follows the end"),
    ("[1]", "expected an object"),
    ('{"mcpServers": []}', "to be an object"),
    ('{"mcpServers": {}, "mcpServers": {}}', "2 times"),
    ('{"a": 01}', "no JSON"),
    ("{'a': 1}", "no JSON"),
    ('{"a": /* open', "no JSON"),
    ('{"a": NaN}', "no JSON"),
    ('{"a": "\x01"}', "no JSON"),
    ('{"a": ' + "[" * 5_000, "nested deeper"),
    ('{"a" 1}', "expected :"),
    ("{,}", "expected a name"),
]


@pytest.mark.parametrize(("text", "expected"), INVALID)
def test_invalid_json_is_refused_untouched(project: Path, text: str, expected: str) -> None:
    write(project / ".mcp.json", text)
    before = tree(project)
    with pytest.raises(ConfigError, match=expected):
        agent_kit.install("claude", project, SERVER)
    with pytest.raises(ConfigError, match=expected):
        agent_kit.uninstall("claude", project)
    assert tree(project) == before


@pytest.mark.parametrize("text", ["a = ", "mcp_servers = 1\n", "[a\n", 'mcp_servers = { a = { command = "x" } }\n'])
def test_invalid_toml_is_refused_untouched(project: Path, text: str) -> None:
    write(project / ".codex/config.toml", text)
    before = tree(project)
    with pytest.raises(ConfigError):
        agent_kit.install("codex", project, SERVER)
    assert tree(project) == before


def test_bytes_that_are_no_text_and_things_that_are_no_files_are_refused(project: Path) -> None:
    (project / ".mcp.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ConfigError, match="UTF-8"):
        agent_kit.install("claude", project, SERVER)
    (project / ".vscode/mcp.json").mkdir(parents=True)
    with pytest.raises(ConfigError, match="is no file"):
        agent_kit.install("vscode", project, SERVER)
    (project / ".cursor").mkdir()
    os.mkfifo(project / ".cursor/mcp.json")
    with pytest.raises(ConfigError, match="is no file"):
        agent_kit.install("cursor", project, SERVER)
    write(project / ".codex", "a file where a folder should be")
    with pytest.raises(ConfigError):
        agent_kit.install("codex", project, SERVER)


@pytest.mark.parametrize("link", [".mcp.json", ".claude", ".claude/skills"])
def test_a_link_out_of_the_folder_is_not_followed(project: Path, link: str) -> None:
    outside = project.parent / "outside"
    outside.mkdir()
    write(outside / "target.json", "{}")
    (project / link).parent.mkdir(parents=True, exist_ok=True)
    (project / link).symlink_to(outside / "target.json" if link.endswith("json") else outside)
    before = tree(outside)
    with pytest.raises(ConfigError, match="leads out of"):
        agent_kit.install("claude", project, SERVER)
    assert tree(outside) == before
    assert not (project / ".mcp.json").is_file() or link == ".mcp.json"


def test_a_link_within_the_folder_is_written_through(project: Path) -> None:
    real = write(project / "settings/mcp.json", "{}")
    (project / ".mcp.json").symlink_to("settings/mcp.json")
    agent_kit.install("claude", project, SERVER)
    assert (project / ".mcp.json").is_symlink()
    assert server_in(real)["args"] == SERVER["args"]
    agent_kit.uninstall("claude", project)
    assert real.read_text(encoding="utf-8") == "{}"


def test_when_the_second_file_fails_the_first_is_as_before(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(project / ".mcp.json", "{}\n")
    from kb.service.kit import files

    real = files.replace

    def failing(path: Path, *given: Any, **more: Any) -> None:  # noqa: ANN401
        if path.name == "SKILL.md":
            raise ConfigError("no space left")
        real(path, *given, **more)

    monkeypatch.setattr(files, "replace", failing)
    with pytest.raises(ConfigError, match="no space"):
        agent_kit.install("claude", project, SERVER)
    assert file.read_bytes() == b"{}\n"
    assert set(tree(project)) == {".mcp.json"}


def test_a_change_between_looking_and_writing_is_not_overwritten(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(project / ".mcp.json", "{}\n")
    from kb.service.kit import files

    real = files.make_folders

    def meanwhile(path: Path) -> list[str]:
        if path == file:
            write(file, '{"b": 1}\n')
        return real(path)

    monkeypatch.setattr(files, "make_folders", meanwhile)
    with pytest.raises(ConfigError, match="changed in the meantime"):
        agent_kit.install("claude", project, SERVER)
    assert file.read_bytes() == b'{"b": 1}\n'
