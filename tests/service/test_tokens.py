"""Tokens: shown once, kept as digests in a file of its owner's alone."""

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from kb import launch
from kb.errors import ConfigError
from kb.service import tokens


def test_a_token_is_shown_once_and_kept_as_a_digest() -> None:
    made = tokens.new_token("ci", ["judge"])
    text = tokens.tokens_file().read_text()
    assert made.text not in text
    assert made.text.rpartition("_")[2] not in text
    assert stat.S_IMODE(tokens.tokens_file().stat().st_mode) == 0o600
    assert tokens.match(made.text, tokens.all_tokens()) == made.token
    assert made.token.scopes == ("read", "judge")


def test_nothing_else_matches() -> None:
    made = tokens.new_token("ci", ["read"])
    known = tokens.all_tokens()
    for wrong in ("", made.text[:-1], made.text + "A", made.text.upper(), made.token.sha256, made.token.id, "\ud800"):
        assert tokens.match(wrong, known) is None


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "a/b", "../x", "x" * 65, "ü", "a\nb", "a<b>"])
def test_a_name_is_that_of_an_author(name: str) -> None:
    with pytest.raises(ConfigError, match="is none"):
        tokens.new_token(name, ["read"])


def test_unknown_scopes_taken_names_and_odd_days_are_refused() -> None:
    for scopes in ([], ["admin"], ["read", "Write"]):
        with pytest.raises(ConfigError, match="scope"):
            tokens.new_token("a", scopes)
    for days in (0, -1, float("nan"), 1e9):
        with pytest.raises(ConfigError, match="days"):
            tokens.new_token("a", ["read"], days=days)
    tokens.new_token("a", ["read"])
    with pytest.raises(ConfigError, match="already"):
        tokens.new_token("a", ["read"])


def test_revoking_needs_a_known_name() -> None:
    made = tokens.new_token("a", ["read"])
    with pytest.raises(ConfigError) as caught:
        tokens.revoke("b")
    assert caught.value.hint == "known: a"
    assert tokens.revoke(made.token.id) == made.token
    assert tokens.all_tokens() == ()


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{}", '{"schema": 2, "tokens": []}', '{"schema": 1, "tokens": [{}]}', "\x00",
     '{"schema": 1, "tokens": [{"name": "a", "id": "0", "sha256": "0", "scopes": ["read"], "created_utc": "x"}]}'],
)  # fmt: skip
def test_a_damaged_file_lets_nobody_in(body: str) -> None:
    tokens.new_token("a", ["read"])
    tokens.tokens_file().write_text(body)
    with pytest.raises(ConfigError, match="expected tokens"):
        tokens.all_tokens()


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_a_file_that_others_can_read_is_refused() -> None:
    tokens.new_token("a", ["read"])
    tokens.tokens_file().chmod(0o640)
    with pytest.raises(ConfigError, match="other users"):
        tokens.all_tokens()


def test_several_at_once_all_stay() -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: tokens.new_token(f"t{number}", ["read"]), range(12)))
    assert len(tokens.all_tokens()) == 12


def test_the_commands_make_list_and_revoke(capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main(["token", "new", "ci", "--scope", "write", "--scope", "judge", "--days", "7"]) == 0
    out, said = capsys.readouterr()
    assert out.startswith("kb_")
    assert "ci may read, write, judge" in said
    assert tokens.match(out.strip(), tokens.all_tokens()) is not None
    assert launch.main(["token", "list", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], "sha256" in row) == ("ci", False)
    assert launch.main(["token", "list"]) == 0
    assert "ci" in capsys.readouterr().out
    assert launch.main(["token", "revoke", "ci"]) == 0
    assert launch.main(["token", "revoke", "ci"]) == 2
    assert "there is no token called 'ci'" in capsys.readouterr().err


def test_a_token_that_has_run_out_is_marked_with_what_replaces_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens.new_token("kept", ["read"])
    tokens.new_token("ci", ["write"], days=1)
    file = tokens.tokens_file()
    raw = json.loads(file.read_text(encoding="utf-8"))
    raw["tokens"][0]["expires_utc"] = "2020-02-03T00:00:00+00:00"
    file.write_text(json.dumps(raw), encoding="utf-8")
    renewal = "kb token revoke ci; kb token new ci --scope write --days 90"
    monkeypatch.setenv("COLUMNS", "200")
    assert launch.main(["token", "list"]) == 0
    out, said = capsys.readouterr()
    assert out.count("EXPIRED") == 1
    assert f"ci ran out on 2020-02-03 and is refused; to renew it: {renewal}" in " ".join(said.split())
    assert "kept ran out" not in said
    assert launch.main(["token", "list", "--json"]) == 0
    assert {one["name"]: one["expired"] for one in json.loads(capsys.readouterr().out)} == {"ci": True, "kept": False}
    with pytest.raises(ConfigError, match="ran out on 2020-02-03") as caught:
        tokens.new_token("ci", ["write"])
    assert caught.value.hint == renewal
