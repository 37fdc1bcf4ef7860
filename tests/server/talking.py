"""Real servers to talk to, started as hosts start them, and a look at the processes that they have."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from kb.config import MARKER, Root
from kb.service.tokens import new_token

REPOSITORY = Path(__file__).resolve().parents[2]
ENTRY = "kernel/silu/flat-vectorised"
TARGET = "target/sam-3-1/bf16-h100"


def starter_in_git(folder: Path) -> Root:
    """Return a knowledge base of one kernel and one target, with one commit."""
    for one in (ENTRY, TARGET):
        shutil.copytree(REPOSITORY / "entries" / one, folder / "entries" / one)
    (folder / MARKER).write_text("schema = 1\n", encoding="utf-8")
    (folder / ".gitignore").write_text(".kb/\n", encoding="utf-8")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "begin")
    return Root(folder)


def git(folder: Path, *arguments: str) -> str:
    """Run git as somebody."""
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@localhost", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def environment() -> dict[str, str]:
    """Return the environment in which this very checkout is run."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY)}


def stdio(base: Root, *options: str) -> StdioServerParameters:
    """Return what starts ``kb mcp``."""
    arguments = ["-m", "kb", "mcp", "--bare", "--root", str(base.path), *options]
    return StdioServerParameters(command=sys.executable, args=arguments, env=environment())


@contextmanager
def serving(base: Root, *options: str) -> Iterator[str]:
    """Start ``kb serve`` on a free port of loopback; yield its address."""
    command = [sys.executable, "-m", "kb", "serve", "--bare", "--port", "0", "--root", str(base.path), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"http://127\.0\.0\.1:[0-9]+", line)
            assert found is not None, line + process.stderr.read()
            yield found.group()
        finally:
            process.terminate()
            assert process.wait(60) == 0


def bearer(*scopes: str, name: str = "agent-7") -> dict[str, str]:
    """Make a token; return the header that carries it."""
    return {"Authorization": f"Bearer {new_token(name, scopes).text}"}


@asynccontextmanager
async def over_http(url: str, headers: dict[str, str] | None = None) -> AsyncIterator[Client]:
    """Yield a client of ``kb serve``."""
    async with (
        httpx2.AsyncClient(headers=headers, timeout=120) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        yield client


def said(result: Any) -> str:  # noqa: ANN401 - a result of the SDK
    """Return the text that a model reads."""
    return "\n".join(str(one.text) for one in result.content)


def processes() -> dict[int, tuple[int, str]]:
    """Return every process that runs: number → parent's number, command line."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            facts = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if facts[0] not in "ZX":
            found[int(folder.name)] = (int(facts[1]), line)
    return found


def below(ancestor: int) -> set[int]:
    """Return the processes that descend from one."""
    known = processes()
    found: set[int] = set()
    while True:
        more = {one for one, (parent, _) in known.items() if (parent == ancestor or parent in found)} - found
        if not more:
            return found
        found |= more


def started_for(base: Root) -> int:
    """Return the number of the one server of a knowledge base."""
    (found,) = (one for one, (_, line) in processes().items() if f"--root {base.path}" in line and " kb " in line)
    return found


def until(holds: Callable[[], bool], *, seconds: float = 60.0) -> bool:
    """Wait until something holds; return whether it did in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.05)
    return holds()


def gone(numbers: set[int]) -> bool:
    """Tell whether none of these processes runs any more."""
    return not numbers & set(processes())


class Wire:
    """``kb mcp`` spoken to line by line, so that every byte of its stdout is seen."""

    def __init__(self, base: Root, *options: str) -> None:
        """Start it and say hello."""
        given = stdio(base, *options)
        self.process = subprocess.Popen(
            [given.command, *given.args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=given.env,
        )
        self.replies: dict[int, dict[str, Any]] = {}
        self.lines = 0
        self._ended = False
        self._told = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        self.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about})
        assert self.reply(0) is not None
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; a server that is gone takes none."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def call(self, number: int, tool: str, **given: object) -> None:
        """Call a tool without waiting."""
        params = {"name": tool, "arguments": given}
        self.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})

    def reply(self, number: int, *, seconds: float = 120.0) -> dict[str, Any] | None:
        """Wait for an answer; None if none comes before the server is gone or the time is over."""
        with self._told:
            self._told.wait_for(lambda: number in self.replies or self._ended, seconds)
            return self.replies.get(number)

    def close(self) -> None:
        """Hang up and wait for its end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(60)
        self._reader.join(60)
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                said = json.loads(line)  # what is no protocol ends the conversation, and with it the test
                assert said["jsonrpc"] == "2.0"
                with self._told:
                    self.lines += 1
                    if "id" in said and "method" not in said:
                        assert said["id"] not in self.replies, "two answers to one question"
                        self.replies[said["id"]] = said
                    self._told.notify_all()
        finally:
            with self._told:
                self._ended = True
                self._told.notify_all()
