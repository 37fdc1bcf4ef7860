"""Agents reach the same process at /mcp, through the SDK's own client and behind the same guard."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("mcp")

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from kb.config import Root
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


def test_tools_that_nobody_may_use_are_not_offered(base: Root) -> None:
    async def names(client: Client) -> set[str]:
        return {tool.name for tool in (await client.list_tools()).tools}

    with served(base) as url:
        assert not {"judge", "submit", "outcome"} & talk(url, names)
    mine = bearer("read", "judge")
    with served(base) as url:
        assert {"search", "get", "judge", "submit"} <= talk(url, names, mine)
        refused = talk(url, lambda client: client.call_tool("outcome", OUTCOME), mine)
        assert refused.is_error
        assert "scope write" in refused.content[0].text
        refused = talk(url, lambda client: client.call_tool("judge", CANDIDATE))
        assert "scope judge" in refused.content[0].text


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
