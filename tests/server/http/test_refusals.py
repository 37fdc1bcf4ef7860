"""Every refusal is a problem document with a next step, also where a library below the routes finds the fault."""

import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from kb.config import Root
from tests.server.http.conftest import QUIET, ROW, bearer, client_of, served
from tests.server.http.test_socket import connected, everything

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def writer(base: Root) -> Iterator[TestClient]:
    with client_of(base) as client:
        client.headers.update(bearer("write", "judge"))
        yield client


def parted(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of an answer as it came over the line."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
    if headers.get("transfer-encoding") == "chunked":
        size, _, rest_of = body.partition(b"\r\n")
        body = rest_of[: int(size, 16)]
    return int(first.split(" ")[1]), headers, body


def problem(status: int, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Return a problem document, after a look at its form and at what every answer carries."""
    assert headers["content-type"] == "application/problem+json"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    found: dict[str, Any] = json.loads(body)
    assert found["status"] == status
    assert found["hint"]
    assert "kb " not in found["hint"].replace("GET /", "")
    return found


def alive(line: socket.socket) -> bool:
    """Read the answer of /healthz on a connection that stays."""
    found = b""
    while not found.endswith(b'{"status":"ok"}') and (part := line.recv(65_536)):
        found += part
    return found.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01 nonsense\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /v1 HTTP/1.1\r\n\r\n",
        b"GET /v1 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST /v1/outcomes HTTP/1.1\r\nHost: localhost\r\nContent-Length: abc\r\n\r\n",
        b"POST /v1/outcomes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
    ],
    ids=["bytes", "half a line", "no host", "two hosts", "length in letters", "unknown encoding"],
)
def test_what_is_no_http_is_refused_as_everything_else_is(base: Root, sent: bytes) -> None:
    with served(base) as url, connected(url) as line:
        line.sendall(sent)
        status, headers, body = parted(everything(line))
        assert status == 400
        assert "Host" in problem(status, headers, body)["hint"]


def test_a_broken_chunk_is_refused_and_harms_no_other_connection(base: Root) -> None:
    with served(base) as url:
        token = bearer("write")["Authorization"]
        head = f"POST /v1/outcomes HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\nTransfer-Encoding: chunked"
        with connected(url) as line:
            line.sendall(f"{head}\r\n\r\nzz\r\n".encode())
            status, headers, body = parted(everything(line))
        assert status == 400
        problem(status, headers, body)
        with connected(url) as other:
            other.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert parted(everything(other))[0] == 200


def test_nonsense_after_an_answer_has_begun_only_ends_the_connection(base: Root) -> None:
    with served(base) as url, connected(url) as line:
        line.sendall(b"POST /v1/outcomes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        found = line.recv(65_536)
        line.sendall(b"zz\r\n")
        found += everything(line)
        assert found.count(b"HTTP/1.1 ") == 1
        assert b" 403 " in found.partition(b"\r\n")[0]


def test_who_comes_when_there_are_too_many_is_told_so_and_the_others_are_served(base: Root) -> None:
    few = replace(QUIET, limits=replace(QUIET.limits, connections=2))
    ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with served(base, few) as url, connected(url) as one, connected(url) as two:
        for line in (one, two):
            line.sendall(ask)
            assert alive(line)
        with connected(url) as third:
            third.sendall(ask)
            status, headers, body = parted(everything(third))
        assert status == 503
        assert headers["retry-after"] == "1"
        assert "connections" in problem(status, headers, body)["detail"]
        one.sendall(ask)
        assert alive(one)


def test_the_page_is_only_read(ask: TestClient, writer: TestClient) -> None:
    for path in ("/", "/matrix", "/entry/kernel/rmsnorm/row-per-cta", "/main.js"):
        for method in ("POST", "PUT", "DELETE"):
            answer = writer.request(method, path)
            found = problem(405, answer.headers, answer.content)
            assert answer.headers["allow"] == "GET, HEAD"
            assert found["hint"] == "it takes GET, HEAD"
        assert ask.get(path).status_code == 200


@pytest.mark.parametrize(
    ("body", "kind", "status", "said", "hint"),
    [
        (b"{a}", "application/json", 422, "no JSON: Expecting property name", "openapi.json"),
        (b"[" * 100_000, "application/json", 400, "cannot be read as JSON", "nested"),
        (b'{"entry": "\xff"}', "application/json", 400, "cannot be read as JSON", "UTF-8"),
        (b"{}", "text/plain", 415, "found text/plain", "Content-Type: application/json"),
        (b"a=b", "application/x-www-form-urlencoded", 415, "found application/x-www-form", "Content-Type"),
        (b"[]", "application/json", 422, "object", "one JSON object"),
        (b"", "application/json", 422, "field required", "one JSON object"),
    ],
    ids=["no json", "deep", "no text", "plain", "form", "list", "nothing"],
)
def test_a_body_that_cannot_be_read_says_how_to_send_it(
    writer: TestClient, body: bytes, kind: str, status: int, said: str, hint: str
) -> None:
    answer = writer.post("/v1/outcomes", content=body, headers={"Content-Type": kind})
    found = problem(status, answer.headers, answer.content)
    assert answer.status_code == status
    assert said in found["detail"]
    assert hint in found["hint"]


def test_a_dtype_may_be_spelt_as_engineers_do_and_an_unknown_one_is_named(writer: TestClient) -> None:
    order = {"operator": "softmax", "source": "def run(x):\n    return x\n"}
    answer = writer.post("/v1/judgements", json={**order, "dtypes": ["bfloat17"]})
    found = problem(422, answer.headers, answer.content)
    assert found["detail"].startswith("body.dtypes.0: unknown dtype; known: ")
    accepted = writer.post("/v1/judgements", json={**order, "dtypes": ["bf16", "half"]})
    assert accepted.status_code == 202
    assert writer.delete(accepted.headers["location"]).status_code == 200


def test_what_the_agents_endpoint_says_in_plain_text_becomes_a_problem(ask: TestClient) -> None:
    accept = "application/json, text/event-stream"
    answer = ask.post("/mcp", content=b"{}", headers={"Content-Type": "text/plain", "Accept": accept})
    found = problem(400, answer.headers, answer.content)
    assert "Content-Type" in found["detail"]
    assert "MCP client" in found["hint"]


def test_what_agents_clients_have_to_read_stays_json_rpc(ask: TestClient) -> None:
    answer = ask.post("/mcp", json={}, headers={"Accept": "application/json, text/event-stream"})
    assert answer.status_code == 400
    assert answer.json()["jsonrpc"] == "2.0"


def test_a_person_who_opens_an_address_that_is_none_still_gets_the_page(ask: TestClient) -> None:
    answer = ask.get("/nothing/here", headers={"Accept": "text/html"})
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert ask.get(f"/v1/entries/{ROW}").status_code == 200
