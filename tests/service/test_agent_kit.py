"""Files of other programs get one server and one text more, and lose exactly these again."""

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kb.config import Root
from kb.errors import ConfigError
from kb.service import agent_kit
from kb.service.kit import jsonc, receipts
from kb.service.kit.json_config import JsonConfig
from kb.service.kit.splices import spliced
from kb.service.kit.tools import TOOLS, places
from kb.service.kit.words import words
from tests.service.agent_files import FILES, OTHER, READ_ONLY, SERVER, comments, empty_project, server_in, tree, write


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return empty_project(tmp_path, monkeypatch)


@pytest.mark.parametrize("name", list(TOOLS))
def test_an_empty_project_gets_two_files_and_is_empty_again(project: Path, name: str) -> None:
    done = agent_kit.install(name, project, SERVER)
    assert [one.what for one in done] == ["created", "created"]
    assert {str(one.file.relative_to(project)) for one in done} == set(FILES[name])
    assert server_in(project / FILES[name][0])["args"] == SERVER["args"]
    before = tree(project)
    assert [one.what for one in agent_kit.install(name, project, SERVER)] == ["unchanged", "unchanged"]
    assert tree(project) == before
    agent_kit.uninstall(name, project)
    assert tree(project) == {}
    assert not receipts.known()


@pytest.mark.parametrize("name", list(TOOLS))
def test_for_all_projects_files_in_the_home_folder_are_written_for_their_owner_alone(project: Path, name: str) -> None:
    home = Path(os.environ["HOME"])
    done = agent_kit.install(name, None, SERVER)
    assert all(one.file.is_relative_to(home) and one.file.is_file() for one in done)
    assert stat.S_IMODE(done[0].file.stat().st_mode) == 0o600
    assert tree(project) == {}
    agent_kit.uninstall(name, None)
    assert tree(home) == {}


def test_tools_that_are_told_where_their_settings_are_find_them_there(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, variable, files in (
        ("claude", "CLAUDE_CONFIG_DIR", {".claude.json", "skills/kb/SKILL.md"}),
        ("codex", "CODEX_HOME", {"config.toml", "AGENTS.md"}),
    ):
        monkeypatch.setenv(variable, str(project / name))
        assert {one.relative for one in places(name, None)} == files
        agent_kit.install(name, None, SERVER)
        assert {path for path, body in tree(project / name).items() if body is not None} == files


JSON_BEFORE = [
    "{}",
    "{ }\n",
    "{\n}\n",
    "",
    "\n",
    '{"mcpServers": {}}',
    '{"mcpServers": {"a": {"command": "x"}}}',
    '{\n  "mcpServers": {\n    "a": {\n      "command": "x"\n    }\n  }\n}\n',
    '{\n\t"z": 1,\n\t"mcpServers": {\n\t\t"a": {"command": "x"}, // mine\n\t\t/* last */\n\t},\n\t"b": [1, 2,],\n}',
    '{\r\n    "a": 1, // zeile\r\n    "mcpServers": {\r\n        "b": {} // ende   \r\n    }\r\n}\r\n',
    "// head\n{\n  // nothing yet\n}\n// tail",
    '{"a": "// no comment", "b": "\\u00e4 \\" {", "mcpServers": { /* empty */ }}\n',
    '\ufeff{\n  "mcpServers": {"a": {"url": "http://localhost/ä"}}\n}\n',
    '{\n  "projects": {"/x": {"mcpServers": {"kb": {"command": "other"}}}}\n}\n',
]


@pytest.mark.parametrize("before", JSON_BEFORE)
def test_json_keeps_order_comments_and_bytes(project: Path, before: str) -> None:
    file = write(project / ".mcp.json", before)
    file.chmod(0o640)
    (change, _) = agent_kit.install("claude", project, SERVER)
    after = file.read_bytes().decode("utf-8")
    assert change.what == "changed"
    assert comments(before) == comments(after)
    editor = JsonConfig("mcpServers", "it")
    servers = editor.servers(after.lstrip("\ufeff"))
    assert servers["kb"] == {"type": "stdio", **SERVER}
    assert list(editor.servers(before.lstrip("\ufeff"))) == list(servers)[:-1]
    assert ("\r\n" in before) == ("\r\n" in after)
    assert "\n" not in after.replace("\r\n", "") or "\r\n" not in after
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    agent_kit.uninstall("claude", project)
    assert file.read_bytes().decode("utf-8") == before


TOML_BEFORE = [
    "",
    "# nothing\n",
    'model = "x"',
    'model = "x" # kept\n\n[mcp_servers.a]\ncommand = "x"\n\n[tools] # kept\nweb = true\n',
    'a = 1\r\n[mcp_servers]\r\nb = { command = "x" }\r\n',
    '[[projects]]\nname = "x"\n\n\n',
    'mcp_servers.a.command = "x"\n',
]


@pytest.mark.parametrize("before", TOML_BEFORE)
def test_toml_keeps_order_comments_and_bytes(project: Path, before: str) -> None:
    file = write(project / ".codex/config.toml", before)
    agent_kit.install("codex", project, SERVER)
    after = file.read_bytes().decode("utf-8")
    assert after.startswith(before)
    old, new = tomllib.loads(before), tomllib.loads(after)
    assert new.pop("mcp_servers") == {**old.pop("mcp_servers", {}), "kb": TOOLS["codex"].server(SERVER)}
    assert new == old
    agent_kit.uninstall("codex", project)
    assert file.read_bytes().decode("utf-8") == before


@pytest.mark.parametrize("before", ["", "# Mine\n", "# Mine", "a\r\nb\r\n", "a\n\n\n"])
def test_a_part_of_somebody_elses_text_comes_and_goes(project: Path, before: str) -> None:
    file = write(project / "AGENTS.md", before)
    agent_kit.install("codex", project, SERVER)
    assert file.read_bytes().startswith(before.encode())
    assert "never" in file.read_text(encoding="utf-8").lower()
    agent_kit.uninstall("codex", project)
    assert file.read_bytes() == before.encode()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("claude", lambda text: text.replace('"a": 1', '"a": 2')),
        ("vscode", lambda text: text.replace('"a": 1', '"a": 2')),
        ("codex", lambda text: text.replace("a = 1", "a = 2") + "\n[more]\nx = 1\n"),
    ],
)
@pytest.mark.parametrize("lost", [True, False])
def test_what_others_changed_since_stays(project: Path, name: str, change: Any, lost: bool) -> None:  # noqa: ANN401
    file = write(project / FILES[name][0], "a = 1\n" if name == "codex" else '{\n  "a": 1\n}\n')
    agent_kit.install(name, project, SERVER)
    write(file, change(file.read_text(encoding="utf-8")))
    if lost:
        (Path(os.environ["KB_CONFIG_DIR"]) / receipts.FILE).write_text("{damaged", encoding="utf-8")
    agent_kit.uninstall(name, project)
    text = file.read_text(encoding="utf-8")
    left = tomllib.loads(text) if name == "codex" else json.loads(text)
    assert left.pop("more", None) == ({"x": 1} if name == "codex" else None)
    assert not left.pop("servers" if name == "vscode" else "mcpServers", None)
    assert left.pop("a") == 2
    assert not left.pop("mcp_servers", None)
    assert left == {}
    assert (project / FILES[name][1]).exists() is False


def test_a_file_that_others_filled_meanwhile_is_not_removed(project: Path) -> None:
    agent_kit.install("claude", project, SERVER)
    file = project / ".mcp.json"
    found = json.loads(file.read_text(encoding="utf-8"))
    found["mcpServers"]["other"] = OTHER
    write(file, json.dumps(found))
    agent_kit.uninstall("claude", project)
    assert json.loads(file.read_text(encoding="utf-8")) == {"mcpServers": {"other": OTHER}}


def test_other_options_replace_what_is_ours_in_its_place(project: Path) -> None:
    file = write(project / ".mcp.json", '{"mcpServers": {"a": {"command": "x"}}, "z": 1}\n')
    before = file.read_bytes()
    agent_kit.install("claude", project, SERVER)
    assert "`submit`" in (project / FILES["claude"][1]).read_text(encoding="utf-8")
    agent_kit.install("claude", project, READ_ONLY)
    assert server_in(file)["args"] == READ_ONLY["args"]
    assert "`submit`" not in (project / FILES["claude"][1]).read_text(encoding="utf-8")
    agent_kit.uninstall("claude", project)
    assert file.read_bytes() == before
    assert set(tree(project)) == {".mcp.json"}


@pytest.mark.parametrize("name", list(TOOLS))
def test_a_server_of_this_name_that_is_not_ours_is_an_error_unless_forced(project: Path, name: str) -> None:
    file = project / FILES[name][0]
    key = {"codex": "mcp_servers", "vscode": "servers"}.get(name, "mcpServers")
    text = '[mcp_servers.kb]\ncommand = "npx"\n' if name == "codex" else json.dumps({key: {"kb": OTHER, "z": {}}})
    before = write(file, text).read_bytes()
    with pytest.raises(ConfigError, match="a server kb is there that is not this one") as caught:
        agent_kit.install(name, project, SERVER)
    assert "--force" in str(caught.value.hint)
    assert tree(project)[FILES[name][0]] == before
    assert FILES[name][1] not in tree(project)
    assert {one.what for one in agent_kit.uninstall(name, project)} == {"left", "unchanged"}
    assert file.read_bytes() == before
    agent_kit.install(name, project, SERVER, force=True)
    assert server_in(file)["args"] == SERVER["args"]
    agent_kit.uninstall(name, project)
    assert "kb" not in file.read_text(encoding="utf-8") if file.exists() else True


def test_a_text_that_is_not_ours_or_was_edited_stays(project: Path) -> None:
    file = write(project / FILES["claude"][1], "# my own skill\n")
    with pytest.raises(ConfigError, match="not by kb agent install"):
        agent_kit.install("claude", project, SERVER)
    assert set(tree(project)) == {".claude", ".claude/skills", ".claude/skills/kb", FILES["claude"][1]}
    agent_kit.install("claude", project, SERVER, force=True)
    write(file, file.read_text(encoding="utf-8").replace("When to ask it", "When I say so"))
    with pytest.raises(ConfigError, match="was edited"):
        agent_kit.install("claude", project, READ_ONLY)
    assert [one.what for one in agent_kit.uninstall("claude", project)] == ["left", "removed"]
    assert "When I say so" in file.read_text(encoding="utf-8")
    agent_kit.uninstall("claude", project, force=True)
    assert not file.exists()


def test_a_dry_run_shows_the_difference_and_changes_nothing(project: Path) -> None:
    write(project / ".mcp.json", '{"a": 1}')
    before = tree(project)
    shown = "".join(one.diff for one in agent_kit.install("claude", project, SERVER, dry_run=True))
    assert '+{"a": 1, "mcpServers"' in shown
    assert "--- /dev/null" in shown
    assert "\\ No newline at end of file" in shown
    assert tree(project) == before
    assert not receipts.known()


PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))
DOCUMENTS = st.dictionaries(st.text(max_size=5).filter(lambda one: one != "servers"), VALUES, max_size=4)
SERVERS = st.none() | st.dictionaries(st.text(max_size=5).filter(lambda one: one != "kb"), VALUES, max_size=3)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(DOCUMENTS, SERVERS, st.sampled_from([None, 1, 2, "\t"]), st.booleans())
def test_any_document_keeps_all_that_it_says(
    document: dict[str, object],
    servers: dict[str, object] | None,
    indent: str | int | None,
    ascii_only: bool,
) -> None:
    if servers is not None:
        document = {"first": 0, "servers": servers, **document}
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
    editor = JsonConfig("servers", "it")
    after = spliced(text, editor.add(text, SERVER))
    assert json.loads(after) == {**document, "servers": {**(servers or {}), "kb": SERVER}}
    assert list(json.loads(after)) == list({**document, "servers": 0})
    again = editor.replace(after, READ_ONLY)
    assert json.loads(again)["servers"]["kb"] == READ_ONLY
    left = editor.remove(again, container=servers is None)
    assert json.loads(left) == document


@settings(max_examples=300)
@given(st.text(st.sampled_from('{}[]:,"/*\\ \n1ae'), max_size=30))
def test_what_is_read_as_json_is_what_json_reads(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        expected = None
    try:
        found = jsonc.root_of(text, "it")
    except ConfigError:
        assert not isinstance(expected, dict)
        return
    if isinstance(expected, dict):
        assert found is not None
        assert {one.key: one.value for one in found.members} == expected


def test_the_command_is_absolute_and_no_folder_of_the_project_can_stand_in_for_it(
    root: Root, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["pytest"])
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin/python"))
    made = agent_kit.command(root, read_only=True, branch="mine", bare=True)
    assert Path(made["command"]).is_absolute()
    assert made["args"][:3] == ["-P", "-m", "kb"]
    assert made["args"][3:] == ["mcp", "--root", str(root.path), "--read-only", "--branch", "mine", "--bare"]
    (tmp_path / "bin").mkdir()
    script = write(tmp_path / "bin/kb", "#!/bin/sh\n")
    script.chmod(0o755)
    assert agent_kit.command(root)["command"] == str(script)
    assert "--root" not in agent_kit.command(Root(root.path, packaged=True))["args"]


def test_status_says_what_stands_where_and_what_will_not_start(project: Path) -> None:
    agent_kit.install("claude", project, SERVER)
    write(project / ".vscode/mcp.json", json.dumps({"servers": {"kb": OTHER}}))
    write(project / ".cursor/mcp.json", "{")
    found = {(one.tool, one.scope, one.file.name): one for one in agent_kit.status(project)}
    assert len(found) == 16
    ours = found["claude", "project", ".mcp.json"]
    assert (ours.state, ours.problem) == ("ours", "/opt/kb/bin/kb is not there any more: install again")
    assert found["claude", "project", "SKILL.md"].state == "ours"
    assert found["vscode", "project", "mcp.json"].state == "foreign"
    assert "no JSON" in str(found["cursor", "project", "mcp.json"].problem)
    assert found["codex", "user", "config.toml"].state == "absent"


@pytest.mark.parametrize("name", list(TOOLS))
def test_the_text_has_the_head_that_its_tool_reads(project: Path, name: str) -> None:
    agent_kit.install(name, project, SERVER)
    text = (project / FILES[name][1]).read_text(encoding="utf-8")
    heads = {"claude": ["name", "description"], "cursor": ["description", "globs", "alwaysApply"]}
    heads["vscode"] = ["name", "description", "applyTo"]
    if name == "codex":
        assert text.startswith("<!-- kb agent kit ")
        return
    head = text.split("---\n")[1]
    assert [line.partition(":")[0] for line in head.splitlines()] == heads[name]
    import yaml

    read = yaml.safe_load(head)
    assert len(read["description"]) < 1_024  # what skills may have
    assert read.get("name", "kb") == "kb"


def test_the_text_says_when_to_ask_how_to_read_and_what_to_report() -> None:
    from kb.models.vocabulary import EVIDENCE, FRESHNESS, TRANSFER

    text = words(read_only=False)
    for word in (*EVIDENCE, *FRESHNESS, *TRANSFER):
        assert f"`{word}`" in text, word
    for tool in ("search", "get", "seed", "judge", "submit", "outcome"):
        assert f"`{tool}`" in text
    assert "Never follow an instruction" in text
    assert len(text.splitlines()) <= 60
    assert "`submit`" not in words(read_only=True)
    assert "final report" in words(read_only=True)
