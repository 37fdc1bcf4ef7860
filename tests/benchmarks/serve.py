"""Search over HTTP under load, beside a plain Chroma server with the same vectors, in one run on loopback.

    python tests/benchmarks/serve.py [--clients 50] [--seconds 60] [--root DIR] [--no-chroma] [--json]

Clients ask one after the other without a pause, so a slow server is asked less often: throughput and latency are two
sides of one figure. ``kb`` understands a query, scopes, matches, ranks and explains; Chroma is handed the vector of the
query, computed before, and returns the nearest ids. ``distinct`` adds a word of its own to every query, so that no
answer can be one that was kept; ``repeated`` asks the same queries again and again. Stops by itself.
"""

import argparse
import asyncio
import itertools
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

REPOSITORY = Path(__file__).parent.parent.parent
PROGRAM = [sys.executable, "-c", "import sys; from kb.launch import main; sys.exit(main())"]
QUERIES = (
    "nvfp4 moe grouped gemm decode", "rmsnorm bf16 sm_90", "paged attention split k gqa", "router gemm is slow at m1",
    "tuned fused moe config for B200", "softmax long rows", "cuda graph capture decode", "kv cache page size",
    "fp8 block scaled gemm H100", "rope partial rotary", "quantize to nvfp4 two level scale", "gated delta prefill",
    "all reduce small messages nvlink", "workspace memory fragmentation", "layernorm welford", "window attention",
    "persistent kernel tile scheduler", "top k top p sampling", "swizzled scale factors", "why is fp8 kv slower",
    "mask decoder upsampling", "conv transpose stride 2", "negative result fp4 hopper", "buddy allocator",
)  # fmt: skip
PARTS = ("clients", "requests", "errors", "per_second", "p50_ms", "p95_ms", "p99_ms", "longest_ms")


def main() -> int:
    """Measure and print; 1 if there was an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run under load")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="whose entries are served, from a copy")
    parser.add_argument("--no-chroma", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kb-load-") as folder, ExitStack() as stack:
        runs = measured(Path(folder), options, stack)
    if options.json:
        json.dump(runs, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        print(f"{'':28}" + "".join(f"{part:>12}" for part in PARTS))
        for name, run in runs.items():
            print(f"{name:28}" + "".join(f"{run[part]:>12}" for part in PARTS))
    return int(any(run["errors"] for run in runs.values()))


def measured(folder: Path, options: argparse.Namespace, stack: ExitStack) -> dict[str, dict[str, Any]]:
    """Start both servers on a copy of the entries and put them under load, one after the other."""
    base = folder / "base"
    shutil.copytree(options.root / "entries", base / "entries")
    (base / "kb.toml").write_text("schema = 1\n", encoding="utf-8")
    os.environ |= {"KB_CONFIG_DIR": str(folder / "config"), "KB_CACHE_DIR": str(folder / "cache")}
    url = stack.enter_context(kb_server(base))
    number, words = itertools.count(), itertools.count()
    ours = {
        "kb, distinct": lambda: get(url, f"{next_query(number)} {own_word(next(words))}"),
        "kb, repeated": lambda: get(url, next_query(number)),
    }
    runs = {"kb, distinct, one client": asyncio.run(load(url, ours["kb, distinct"], 1, min(10.0, options.seconds)))}
    chroma = None if options.no_chroma else stack.enter_context(chroma_server(folder, base))
    for name, request in ours.items():
        runs[name] = asyncio.run(load(url, request, options.clients, options.seconds))
        if chroma is not None and "Chroma" not in runs:
            place, bodies = chroma
            following = itertools.cycle(bodies).__next__
            runs["Chroma, one client"] = asyncio.run(load(place, following, 1, min(10.0, options.seconds)))
            runs["Chroma"] = asyncio.run(load(place, following, options.clients, options.seconds))
    return runs


def next_query(number: "itertools.count[int]") -> str:
    """Return the queries in turn."""
    return QUERIES[next(number) % len(QUERIES)]


def own_word(number: int) -> str:
    """Return a word that nothing else has: ``qz`` and letters."""
    return "qz" + "".join(chr(ord("a") + int(digit)) for digit in str(number))


def get(url: str, query: str) -> bytes:
    """Return a search as it goes over the line."""
    host = url.removeprefix("http://")
    return f"GET /v1/search?q={quote(query)}&limit=10 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("ascii")


async def load(url: str, request: Any, clients: int, seconds: float) -> dict[str, Any]:  # noqa: ANN401 - a function
    """Ask with so many clients for so long; return the figures."""
    took: list[float] = []
    errors: list[str] = []
    began = time.perf_counter()
    await asyncio.gather(*(client(url, request, began + seconds, took, errors) for _ in range(clients)))
    spent = time.perf_counter() - began
    took.sort()
    if errors:
        print(f"the first error: {errors[0]}", file=sys.stderr)
    return {
        "clients": clients,
        "requests": len(took),
        "errors": len(errors),
        "per_second": round(len(took) / spent, 1),
        "p50_ms": round(statistics.median(took), 2),
        "p95_ms": round(took[int(0.95 * len(took))], 2),
        "p99_ms": round(took[int(0.99 * len(took))], 2),
        "longest_ms": round(took[-1], 2),
    }


async def client(url: str, request: Any, until: float, took: list[float], errors: list[str]) -> None:  # noqa: ANN401
    """Ask over one connection until the time is over."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        while time.perf_counter() < until:
            asked = request()
            began = time.perf_counter()
            writer.write(asked)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
            body = await asyncio.wait_for(body_of(reader, head.lower()), 30)
            took.append((time.perf_counter() - began) * 1000)
            if b" 200 " not in head[:16]:
                errors.append(f"{head[:40]!r} {body[:200]!r}")
    except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
        errors.append(repr(error))
    finally:
        writer.close()


async def body_of(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """Read one body, of a stated length or in chunks."""
    if b"content-length: " in head:
        return await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
    found = b""
    while (size := int((await reader.readline()).strip(), 16)) > 0:
        found += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return found


@contextmanager
def kb_server(base: Path) -> Iterator[str]:
    """Serve on a free port, warm; yield where."""
    command = [*PROGRAM, "serve", "--port", "0", "--rate", "0", "--root", str(base)]
    with started(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        url = process.stderr.readline().split(" at ")[1].split(" ")[0]
        until = time.monotonic() + 300
        while time.monotonic() < until:
            asked(f"{url}/v1/search?q=warm")
            if asked(f"{url}/v1")["meaning"] not in ("loading",):
                break
            time.sleep(0.5)
        print(f"kb serves {asked(f'{url}/v1')}", file=sys.stderr)
        yield url


@contextmanager
def chroma_server(folder: Path, base: Path) -> Iterator[tuple[str, list[bytes]]]:
    """Serve the same vectors with Chroma; yield where, and a request for each query."""
    import chromadb
    from chromadb.config import Settings

    from kb.config import Root
    from kb.retrieval import models
    from kb.service.embedding import embedder_setting, ensure_vectors

    stored = ensure_vectors(Root(base))
    embedder = models.open_embedder(embedder_setting(), resident=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = str(Path(sys.executable).with_name("chroma"))
    command = [program, "run", "--path", str(folder / "plain"), "--host", "127.0.0.1", "--port", str(port)]
    with started(command, stderr=subprocess.DEVNULL):
        listening(port)
        there = chromadb.HttpClient(host="127.0.0.1", port=port, settings=Settings(anonymized_telemetry=False))
        made = there.create_collection("entries", embedding_function=None)
        made.add(ids=list(stored.ids), embeddings=stored.matrix)
        place = f"/api/v2/tenants/default_tenant/databases/default_database/collections/{made.id}/query"
        bodies = []
        for query in QUERIES:
            vector = [float(value) for value in embedder.embed_query(query)]
            body = json.dumps({"query_embeddings": [vector], "n_results": 10, "include": ["distances"]})
            head = f"POST {place} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            bodies.append(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode("ascii"))
        yield f"http://127.0.0.1:{port}", bodies


@contextmanager
def started(command: list[str], *, stderr: int) -> Iterator["subprocess.Popen[str]"]:
    """Run a server for as long as it is needed."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "ANONYMIZED_TELEMETRY": "False"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr, text=True, env=environment)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def listening(port: int) -> None:
    """Wait until a server listens on a port."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as line:
            if line.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"nothing listens on port {port}")


def asked(place: str) -> dict[str, Any]:
    """Return the JSON that is there."""
    with urlopen(Request(place), timeout=120) as answer:  # noqa: S310 - loopback, from this script
        found: dict[str, Any] = json.load(answer)
    return found


if __name__ == "__main__":
    sys.exit(main())
