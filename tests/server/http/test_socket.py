"""Over a real socket: clients that are slow, send too much, hang up, or talk nonsense harm nobody else."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

pytest.importorskip("fastapi")

import httpx2

from kb.config import Root
from kb.server.http.settings import Limits
from tests.server.http.conftest import QUIET, ROW, bearer, served

HASTY = replace(
    QUIET, limits=Limits(body_bytes=100_000, body_s=1.0, headers_s=1.0, idle_s=1.0, reading_s=1.0, connections=40)
)


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    port = int(url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=20) as line:
        yield line


def everything(line: socket.socket) -> bytes:
    """Read until the server hangs up."""
    found = b""
    while True:
        try:
            part = line.recv(65_536)
        except ConnectionResetError:
            return found
        if not part:
            return found
        found += part


def test_answers_over_a_socket_are_those_of_the_test_client(base: Root) -> None:
    with served(base) as url, httpx2.Client(base_url=url, timeout=60) as client:
        found = client.get("/v1/search", params={"q": "rmsnorm"})
        assert found.status_code == 200
        assert found.json()["hits"][0]["id"] == ROW
        assert "server" not in found.headers
        head = client.head("/v1/search", params={"q": "rmsnorm"})
        assert (head.status_code, head.content) == (200, b"")


def drip(line: socket.socket, *, seconds: float) -> None:
    """Send a header now and then, until the server hangs up or the time is over."""
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            line.sendall(b"X-A: b\r\n")
            time.sleep(0.1)
    except OSError:
        return


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /v1 HT", b"GET /v1 HTTP/1.1\r\nHost: localhost\r\nX-A: "],
    ids=["silent", "half a line", "half a header"],
)
def test_who_sends_no_whole_request_is_hung_up_on(base: Root, sent: bytes) -> None:
    with served(base, HASTY) as url, connected(url) as line:
        line.sendall(sent)
        began = time.monotonic()
        assert everything(line) == b""
        assert 0.5 < time.monotonic() - began < 8


def test_dripping_headers_does_not_buy_time(base: Root) -> None:
    with served(base, HASTY) as url, connected(url) as line:
        line.sendall(b"GET /v1 HTTP/1.1\r\nHost: localhost\r\n")
        began = time.monotonic()
        drip(line, seconds=15)
        assert time.monotonic() - began < 8


def test_a_second_request_on_one_connection_has_no_more_time(base: Root) -> None:
    with served(base, HASTY) as url, connected(url) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in line.recv(65_536)
        line.sendall(b"GET /healthz HT")
        began = time.monotonic()
        everything(line)
        assert time.monotonic() - began < 8


def test_a_body_that_does_not_arrive_is_given_up(base: Root) -> None:
    with served(base, HASTY) as url, connected(url) as line:
        token = bearer("judge")["Authorization"]
        head = f"POST /v1/judgements HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n"
        line.sendall(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
        answer = everything(line)
        assert b" 408 " in answer.partition(b"\r\n")[0]
        assert b"did not arrive in time" in answer


def test_too_large_a_body_is_refused_before_it_is_read(base: Root) -> None:
    with served(base, HASTY) as url, connected(url) as line:
        token = bearer("judge")["Authorization"]
        head = f"POST /v1/judgements HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n"
        line.sendall(f"{head}Expect: 100-continue\r\nContent-Length: {10**12}\r\n\r\n".encode())
        answer = everything(line)
        assert b" 413 " in answer.partition(b"\r\n")[0]
        assert b"100 Continue" not in answer


def test_too_large_a_body_in_chunks_is_refused_at_the_limit(base: Root) -> None:
    with served(base, HASTY) as url, connected(url) as line:
        token = bearer("judge")["Authorization"]
        head = f"POST /v1/judgements HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n"
        line.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        sent = 0
        answer = b""
        try:
            while sent < 50_000_000:
                line.sendall(b"4000\r\n" + b"a" * 0x4000 + b"\r\n")
                sent += 0x4000
        except OSError:
            pass
        answer = everything(line)
        assert sent < 20_000_000
        assert answer == b"" or b" 413 " in answer.partition(b"\r\n")[0]


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /v1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET /v1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"POST /v1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: gzip\r\n\r\nabc",
        b"GET http://evil.example/v1 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"GET /v1 HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x00\xa5\x01\x00\x00",
        b"GET /v1 HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /v1\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1 HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"GET /v1/entries/../../../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /v1/entries/%2e%2e/%2e%2e/%2e%2e HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET //etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ],
)
def test_nonsense_is_refused_and_the_next_client_served(base: Root, sent: bytes) -> None:
    with served(base, HASTY) as url:
        with connected(url) as line:
            line.sendall(sent)
            status = everything(line).partition(b"\r\n")[0]
            assert status == b"" or status.split()[1].startswith(b"4"), status
        assert httpx2.get(f"{url}/healthz").status_code == 200


def test_clients_that_read_nothing_are_hung_up_on(base: Root) -> None:
    (base.entries / ROW / "README.md").write_text("# RMSNorm\n\n" + "word " * 40_000, encoding="utf-8")
    with served(base, HASTY) as url:
        with socket.socket() as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            line.settimeout(20)
            line.connect(("127.0.0.1", int(url.rpartition(":")[2])))
            request = f"GET /v1/entries/{ROW} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            line.sendall(request * 20)
            time.sleep(3.5)
            found = everything(line)
        assert found.count(b"HTTP/1.1 200") < 20
        assert httpx2.get(f"{url}/healthz").status_code == 200


def test_many_slow_clients_do_not_keep_the_others_waiting(base: Root) -> None:
    with served(base, replace(HASTY, limits=replace(HASTY.limits, connections=200))) as url:
        lines = [socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) for _ in range(60)]
        try:
            for line in lines:
                line.sendall(b"GET /v1 HTTP/1.1\r\nHost: loc")
            began = time.monotonic()
            assert httpx2.get(f"{url}/v1/search?q=rmsnorm", timeout=60).status_code == 200
            assert time.monotonic() - began < 30  # sixty that are waited for one by one would take a minute
        finally:
            for line in lines:
                line.close()


def test_twenty_clients_at_once_get_the_same_answer(base: Root) -> None:
    found: list[object] = []

    def ask(url: str) -> None:
        with httpx2.Client(base_url=url, timeout=30) as client:
            answers = [client.get("/v1/search?q=rmsnorm").json() for _ in range(3)]
        found.extend([hit["id"] for hit in one["hits"]] for one in answers)

    with served(base) as url:
        threads = [threading.Thread(target=ask, args=(url,)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 60
    assert all(one == found[0] for one in found)
