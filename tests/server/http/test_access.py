"""Who may ask: foreign pages, tokens that are none, scopes, rates, and servers that only read."""

import http.client
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from kb.config import Root
from kb.errors import ConfigError
from kb.server.http.access import address_of, scope_for
from kb.server.http.limiting import MOST_CLIENTS, Buckets
from kb.server.http.running import check_bind
from kb.server.http.settings import Limits, Settings, is_loopback
from kb.service import tokens
from tests.server.http.conftest import QUIET, bearer, client_of, served

JUDGEMENT = {"operator": "softmax", "source": "def run(x):\n    return x\n"}


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8642", "localhost.evil.example", "127.0.0.1.nip.io", "localhost@evil.example",
     "[::2]", "192.168.0.1", "", "localhost:x", "LOCALHOST.", "::1"],
)  # fmt: skip
def test_a_name_that_is_not_ours_is_refused(ask: TestClient, host: str) -> None:
    answer = ask.get("/v1", headers={"Host": host})
    assert answer.status_code == 421
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("host", ["localhost", "LocalHost:8642", "127.0.0.1:1", "[::1]:8642", "[::1]"])
def test_a_name_of_this_machine_is_ours_on_any_port(ask: TestClient, host: str) -> None:
    assert ask.get("/v1", headers={"Host": host}).status_code == 200


def test_further_names_have_to_be_allowed(base: Root) -> None:
    with client_of(base, replace(QUIET, allow_hosts=("kb.example.org",))) as ask:
        assert ask.get("/v1", headers={"Host": "KB.example.org:443"}).status_code == 200
        assert ask.get("/v1", headers={"Host": "kb.example.com"}).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "https://localhost.evil.example"},
        {"Origin": "file://localhost"},
        {"Origin": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_foreign_pages_are_refused(ask: TestClient, headers: Mapping[str, str]) -> None:
    assert ask.get("/v1", headers=headers).status_code == 403
    assert "access-control-allow-origin" not in ask.get("/v1", headers=headers).headers


def test_our_own_page_may_ask(ask: TestClient) -> None:
    assert ask.get("/v1", headers={"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}).status_code == 200
    assert ask.get("/v1", headers={"Sec-Fetch-Site": "none"}).status_code == 200


def test_every_answer_is_sealed(ask: TestClient) -> None:
    for place in ("/healthz", "/v1", "/v1/nothing", "/v1/search"):
        headers = ask.get(place).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert "unsafe" not in ask.get("/v1").headers["content-security-policy"]
    assert ask.get("/v1", headers={"Host": "evil.example"}).headers["x-content-type-options"] == "nosniff"


def test_without_tokens_the_server_only_reads(ask: TestClient) -> None:
    answer = ask.post("/v1/judgements", json=JUDGEMENT)
    assert answer.status_code == 403
    expected = "whoever runs the server makes a token (kb token new NAME --scope {})"
    assert answer.json()["hint"] == expected.format("judge")
    assert ask.post("/v1/outcomes", json={}).json()["hint"] == expected.format("write")
    assert ask.delete("/v1/entries/kernel/rmsnorm/row-per-cta").status_code == 403


@pytest.mark.parametrize(
    "header",
    ["Bearer", "Bearer ", "Bearer x", "Basic a2I6a2I=", "bearer kb_000000000000_" + "A" * 43, "kb_0", "Bearer é",
     "Bearer " + "A" * 5_000],
)  # fmt: skip
def test_a_token_that_is_none_is_refused_even_for_reading(base: Root, header: str) -> None:
    bearer("read")
    with client_of(base) as ask:
        answer = ask.get("/v1", headers={b"Authorization": header.encode("latin-1")})
        assert answer.status_code == 401
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]


def test_scopes_are_kept_apart(base: Root) -> None:
    reader, writer, judge = bearer("read", name="r"), bearer("write", name="w"), bearer("judge", name="j")
    with client_of(base) as ask:
        assert ask.get("/v1", headers=reader).json()["scopes"] == ["read"]
        assert ask.get("/v1", headers=writer).json()["scopes"] == ["read", "write"]
        assert ask.post("/v1/judgements", json=JUDGEMENT, headers=writer).status_code == 403
        refused = ask.post("/v1/outcomes", json={}, headers=judge)
        assert 'scope="write"' in refused.headers["www-authenticate"]
        assert ask.post("/v1/outcomes", json={}, headers=writer).status_code == 422
        assert ask.post("/v1/judgements", json=JUDGEMENT).status_code == 401


def test_a_read_only_server_writes_for_nobody(base: Root) -> None:
    everything = bearer("write", "judge")
    with client_of(base, replace(QUIET, read_only=True)) as ask:
        assert ask.get("/v1", headers=everything).json()["scopes"] == ["read"]
        answer = ask.post("/v1/judgements", json=JUDGEMENT, headers=everything)
        assert (answer.status_code, answer.json()["detail"]) == (403, "this server is read-only")


def test_a_revoked_or_expired_token_is_refused_at_once(base: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = bearer("read", name="mine")
    with client_of(base) as ask:
        assert "mine" in ask.get("/v1", headers=mine).json().values()
        tokens.revoke("mine")
        assert ask.get("/v1", headers=mine).status_code == 401
    made = tokens.new_token("brief", ["read"], days=1)
    later = datetime.now(UTC) + timedelta(days=2)
    assert tokens.match(made.text, tokens.all_tokens()) == made.token
    assert tokens.match(made.text, tokens.all_tokens(), now=later) is None


def test_tokens_that_others_can_read_let_nobody_in(base: Root) -> None:
    mine = bearer("read", "write")
    tokens.tokens_file().chmod(0o644)
    with client_of(base) as ask:
        answer = ask.get("/v1", headers=mine)
        assert answer.status_code == 503
        assert str(tokens.tokens_file()) not in answer.text
        assert ask.post("/v1/outcomes", json={}).status_code == 401


def test_a_public_address_needs_tokens_to_bind_and_to_read(base: Root) -> None:
    public = replace(QUIET, host="0.0.0.0", allow_hosts=("localhost",))  # noqa: S104 - what is to be refused
    with pytest.raises(ConfigError, match="can be reached from other machines"):
        check_bind(public)
    reader = bearer("read")
    check_bind(public)
    with client_of(base, public) as ask:
        assert ask.get("/healthz").status_code == 200
        assert ask.get("/v1").status_code == 401
        assert ask.get("/metrics").status_code == 401
        assert ask.get("/openapi.json").status_code == 401
        assert ask.get("/v1", headers=reader).status_code == 200


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),  # noqa: S104
     ("10.0.0.1", False), ("localhost.example", False), ("", False)],
)  # fmt: skip
def test_loopback_is_told_from_everything_else(host: str, own: bool) -> None:
    assert is_loopback(host) is own


def test_who_asks_too_often_waits(base: Root) -> None:
    with client_of(base, replace(QUIET, limits=Limits(rate=0.5, burst=3))) as ask:
        codes = [ask.get("/v1").status_code for _ in range(5)]
        assert codes == [200, 200, 200, 429, 429]
        refused = ask.get("/v1")
        assert 1 <= int(refused.headers["retry-after"]) <= 2
        assert ask.get("/healthz").status_code == 200
        assert ask.get("/v1", headers=bearer("read")).status_code == 200


def test_guessing_tokens_ends_soon_and_leaves_others_alone(base: Root) -> None:
    mine = bearer("read")
    with client_of(base, replace(QUIET, limits=Limits(failures=5))) as ask:
        wrong = {"Authorization": "Bearer kb_000000000000_" + "A" * 43}
        codes = [ask.get("/v1", headers=wrong).status_code for _ in range(7)]
        assert codes == [401] * 5 + [429] * 2
        assert ask.get("/v1").status_code == 200
        # Who has a token is not locked out by others behind the same address.
        assert ask.get("/v1", headers=mine).status_code == 200
        assert ask.get("/v1", headers=wrong).status_code == 429


def test_buckets_fill_again_and_forget_the_oldest() -> None:
    held = Buckets(2.0, 2)
    assert [held.take("a", now=0.0) for _ in range(3)] == [0, 0, 1]
    assert held.take("a", now=0.5) == 0
    assert held.take("a", now=0.5) == 1
    assert held.take("b", now=0.5) == 0
    for number in range(MOST_CLIENTS + 10):
        held.take(str(number), now=1.0)
    assert len(held._held) == MOST_CLIENTS
    assert Buckets(0, 1).take("a") == 0


def test_an_ipv6_network_counts_as_one_client() -> None:
    assert address_of(("2001:db8::1", 1)) == address_of(("2001:db8::ffff", 2)) == "2001:db8::/64"
    assert address_of(("10.0.0.1", 1)) == "10.0.0.1"
    assert address_of(None) == address_of(("testclient", 1)) == "unknown"


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/healthz", None), ("GET", "/", None), ("GET", "/app.js", None), ("GET", "/v1", "read"),
        ("GET", "/v1/x", "read"), ("GET", "/metrics", "read"), ("GET", "/openapi.json", "read"), ("POST", "/", "write"),
        ("POST", "/v1/outcomes", "write"), ("PUT", "/v1/anything", "write"), ("GET", "/v1/judgements", "judge"),
        ("POST", "/v1/judgements", "judge"), ("DELETE", "/v1/judgements/x", "judge"), ("POST", "/mcp", "read"),
        ("GET", "/v1/submissions/x", "write"), ("PATCH", "/v1/judgementsx", "write"), ("DELETE", "/page", "write"),
    ],
)  # fmt: skip
def test_what_no_rule_names_needs_to_write(method: str, path: str, scope: str | None) -> None:
    assert scope_for(method, path) == scope


def test_two_hosts_in_one_request_are_refused(base: Root) -> None:
    with served(base) as url:
        connection = http.client.HTTPConnection("127.0.0.1", int(url.rpartition(":")[2]), timeout=10)
        connection.putrequest("GET", "/v1", skip_host=True)
        connection.putheader("Host", "localhost")
        connection.putheader("Host", "evil.example")
        connection.endheaders()
        assert connection.getresponse().status == 400
        connection.close()


def test_settings_stand_for_this_machine_alone() -> None:
    assert Settings().is_loopback
    assert Path(tokens.tokens_file()).name == "tokens.json"
