"""Agents reach the same process at /mcp, through the SDK's own client and behind the same guard."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("mcp")

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from kb.config import Root
from kb.service.tokens import revoke
from tests.server.http.conftest import QUIET, ROW, bearer, served

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "a test", "version": "1"},
    },
}
OUTCOME = {"entry": ROW, "target": "target/a/b", "result": "neutral"}
FILED = {"title": "A softmax", "claim": "It is a copy.", "operator": "softmax", "source": "x = 1\n"}
CANDIDATE = {"operator": "softmax", "source": "def run(x):\n    return x\n"}
BOTH = {"Accept": "application/json, text/event-stream"}


def talk(url: str, use: Callable[[Client], Awaitable[Any]], headers: dict[str, str] | None = None) -> Any:  # noqa: ANN401
    async def connected() -> Any:  # noqa: ANN401 - whatever the conversation returns
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
        ):
            return await use(client)

    return anyio.run(connected)


def test_an_agent_searches_over_http(base: Root) -> None:
    with served(base) as url:
        found = talk(url, lambda client: client.call_tool("search", {"query": "rmsnorm"}))
        assert found.structured_content["hits"][0]["id"] == ROW
        again = talk(url, lambda client: client.call_tool("get", {"id": ROW, "part": "code"}), bearer("read"))
        assert "def run" in again.content[0].text


READING = ["search", "get", "seed"]


async def called(tool: str, given: dict[str, Any], client: Client) -> Any:  # noqa: ANN401 - a result of the SDK
    return await client.call_tool(tool, given)


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


def test_everybody_is_offered_what_their_token_allows(base: Root) -> None:
    judge, write = bearer("judge", name="a"), bearer("write", name="b")
    with served(base) as url:
        assert talk(url, names) == READING
        assert talk(url, names, bearer("read", name="c")) == READING
        assert talk(url, names, judge) == [*READING, "judge"]
        assert talk(url, names, write) == [*READING, "submit", "outcome"]
        assert talk(url, names, bearer("write", "judge", name="d")) == [*READING, "judge", "submit", "outcome"]
        for headers, tool, given, scope in (
            (judge, "outcome", OUTCOME, "write"),
            (None, "judge", CANDIDATE, "judge"),
            (None, "submit", {"nonsense": 1}, "write"),
            (write, "submit", FILED, "judge"),
        ):
            refused = talk(url, partial(called, tool, given), headers)
            assert refused.is_error
            assert f"needs the scope {scope}" in refused.content[0].text
            assert f"kb token new NAME --scope {scope}" in refused.content[0].text
        unknown = talk(url, lambda client: client.call_tool("nothing", {}))
        assert "hint: one of search, get, seed" in unknown.content[0].text


def test_a_token_made_or_revoked_later_counts_without_a_restart(base: Root) -> None:
    with served(base) as url:
        assert talk(url, names) == READING
        mine = bearer("write", name="late")
        assert talk(url, names, mine) == [*READING, "submit", "outcome"]
        found = talk(url, lambda client: client.call_tool("outcome", {**OUTCOME, "entry": "no/such/entry"}), mine)
        assert "scope" not in found.content[0].text

        revoke("late")
        assert httpx2.post(f"{url}/mcp", json=HELLO, headers={**BOTH, **mine}).status_code == 401
        assert talk(url, names) == READING


def test_a_server_that_only_reads_offers_no_more_to_any_token(base: Root) -> None:
    mine = bearer("write", "judge")
    with served(base, replace(QUIET, read_only=True)) as url:
        assert talk(url, names, mine) == READING
        refused = talk(url, lambda client: client.call_tool("outcome", OUTCOME), mine)
        assert "no tool 'outcome' is offered here" in refused.content[0].text


def test_the_same_guard_stands_before_agents(base: Root) -> None:
    mine = bearer("read")
    with served(base) as url, httpx2.Client(base_url=url, headers=BOTH, timeout=20) as client:
        assert client.post("/mcp", json=HELLO).status_code == 200
        for headers, status in (
            ({"Host": "evil.example"}, 421),
            ({"Origin": "http://evil.example"}, 403),
            ({"Authorization": "Bearer kb_none"}, 401),
        ):
            refused = client.post("/mcp", json=HELLO, headers=headers)
            assert (refused.status_code, refused.headers["content-type"]) == (status, "application/problem+json")
        assert client.post("/mcp", content=b"a" * (3 << 20)).status_code == 413
        sealed = client.post("/mcp", json=HELLO, headers=mine)
        assert sealed.headers["x-content-type-options"] == "nosniff"


def test_a_public_server_lets_no_agent_in_without_a_token(base: Root) -> None:
    mine = bearer("read")
    public = replace(QUIET, host="0.0.0.0")  # noqa: S104 - reached over loopback, under a name that is ours
    with served(base, public) as url:
        local = url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        assert httpx2.post(f"{local}/mcp", json=HELLO, headers=BOTH).status_code == 401
        assert httpx2.post(f"{local}/mcp", json=HELLO, headers={**BOTH, **mine}).status_code == 200
