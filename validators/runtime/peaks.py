"""What the machine delivers: bandwidth of memory and cache, rate of matrix products, cost of a launch; measured here.

A trusted process of its own measures once a run. The figures are the ceilings from which floors are computed, and they
show what hardware this is: a claim of another one contradicts them.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kb.validators.runtime import accelerator

_LIMIT_S = 240
_LEAST_S = {"cpu": 0.02, "cuda": 0.004}
"""How long one reading takes at least."""

_READINGS = {"cpu": 4, "cuda": 8}
_MATRIX = {"cpu": 512, "cuda": 8192}
_COPY_BYTES = {"cpu": 64 << 20, "cuda": 1 << 30}
_CACHE_CAP_BYTES = 64 << 20
"""Most of a CPU's last-level cache that is believed to be this machine's own: virtual ones share it with others."""

_NODES = 200

Call = Callable[[], object]


def measure(device: str) -> dict[str, Any]:
    """Measure the peaks of a device, in a trusted process of its own.

    Args:
        device: ``cpu`` or ``cuda:N``.

    Returns:
        ``copy_gbps`` (device memory, read plus written), ``read_gbps``, ``l2_gbps`` (a set that fits into the cache),
        ``matmul_tflops`` by dtype, ``launch_us`` (one call of a trivial kernel, as called), ``node_us`` (the same
        inside a graph; None on a CPU), ``l2_bytes`` (last-level cache).

    Raises:
        RuntimeError: The process failed.
    """
    home = str(Path(str(sys.modules["kb"].__file__)).resolve().parents[1])
    code = f"import sys; sys.path.insert(0, {home!r}); from {__name__} import main; main()"
    environment = dict(os.environ) if device == accelerator.CPU else accelerator.trusted_environment(device)
    done = subprocess.run(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-I", "-B", "-c", code, device.partition(":")[0]],
        env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"the peaks could not be measured: {done.stderr.strip()[-400:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def for_record(peaks: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part that a record holds under ``device.peaks``."""
    return {name: peaks[name] for name in ("copy_gbps", "matmul_tflops", "launch_us", "l2_bytes")}


def plausible(peaks: Mapping[str, Any], claimed: Mapping[str, Any]) -> list[str]:
    """Hold measured peaks against what the claimed hardware has by its data sheet.

    Args:
        peaks: What was measured.
        claimed: Plain numbers of the claimed device: ``mem_gbps``, ``l2_bytes``, ``tflops`` by dtype; a missing one is
            not held against anything.

    Returns:
        Contradictions, in words; empty if the machine can be what it is said to be. Faster than the data sheet by a
        twentieth is impossible; below a third (memory: a half) it is another machine, or one that is shared or broken.
    """
    found = []
    pairs = [("copy_gbps", peaks.get("copy_gbps"), claimed.get("mem_gbps"), 0.5)]
    rates: Mapping[str, float] = claimed.get("tflops") or {}
    pairs += [(f"{name} products", peaks["matmul_tflops"].get(name), rate, 1 / 3) for name, rate in rates.items()]
    for name, measured, published, least in pairs:
        if measured is None or not published:
            continue
        if measured > 1.05 * published:
            found.append(f"{name}: {measured:.4g} measured, more than the {published:.4g} of the claimed device")
        elif measured < least * published:
            found.append(f"{name}: {measured:.4g} measured, far less than the {published:.4g} of the claimed device")
    cache = claimed.get("l2_bytes")
    if cache and peaks.get("l2_bytes") and not 0.5 <= peaks["l2_bytes"] / cache <= 1.5:
        found.append(f"cache: {peaks['l2_bytes']} bytes, not the {cache} of the claimed device")
    return found


def cache_bytes() -> int:
    """Return the size of this host's last-level cache, at most what is believed to be its own."""
    largest = 1 << 20
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = file.read_text(encoding="ascii").strip()
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        if text.rstrip("KM").isdigit():
            largest = max(largest, int(text.rstrip("KM")) * unit)
    return min(largest, _CACHE_CAP_BYTES)


def main() -> None:
    """Measure and print one JSON line."""
    kind = sys.argv[1]
    print(json.dumps(_host() if kind == "cpu" else _gpu()))  # noqa: T201 - read by ``measure``


def _best_seconds(call: Call, wait: Call, kind: str) -> float:
    """Return the least seconds per call over several readings, each long enough for the clock."""
    call()
    wait()
    repeats, taken = 1, 0.0
    while True:
        began = time.perf_counter()
        for _ in range(repeats):
            call()
        wait()
        taken = time.perf_counter() - began
        if taken >= _LEAST_S[kind] or repeats >= 1 << 20:
            break
        repeats = max(repeats * 2, int(repeats * 1.2 * _LEAST_S[kind] / max(taken, 1e-9)))
    best = taken / repeats
    for _ in range(_READINGS[kind]):
        began = time.perf_counter()
        for _ in range(repeats):
            call()
        wait()
        best = min(best, (time.perf_counter() - began) / repeats)
    return best


def _host() -> dict[str, Any]:
    import torch

    def wait() -> None:
        return None

    torch.set_num_threads(max(1, min(2, os.cpu_count() or 1)))
    small = torch.zeros(1)
    found = _bandwidths(torch, wait, "cpu", cache_bytes())
    return {
        **found,
        "matmul_tflops": _products(torch, wait, "cpu", ("float32", "bfloat16")),
        "launch_us": _best_seconds(lambda: small.add(1), wait, "cpu") * 1e6,
        "node_us": None,
        "l2_bytes": cache_bytes(),
    }


def _gpu() -> dict[str, Any]:
    import torch

    from kb.validators.runtime.driver import Driver

    wait = torch.cuda.synchronize
    small = torch.zeros(1, device="cuda")
    cache = int(Driver().facts(0)["l2_bytes"])
    torch.backends.cuda.matmul.allow_tf32 = False
    products = _products(torch, wait, "cuda", ("bfloat16", "float32"))
    eight = _eight_bit(torch, wait)
    return {
        **_bandwidths(torch, wait, "cuda", cache),
        "matmul_tflops": products | ({"float8_e4m3fn": eight} if eight is not None else {}),
        "launch_us": _best_seconds(lambda: small.add_(1), wait, "cuda") * 1e6,
        "node_us": _node_seconds(torch, lambda: small.add_(1)) * 1e6,
        "l2_bytes": cache,
    }


def _bandwidths(torch: Any, wait: Call, kind: str, cache: int) -> dict[str, float]:  # noqa: ANN401 - the module
    size = _COPY_BYTES[kind]
    source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=kind)
    target = torch.empty_like(source)
    copy = 2 * size / _best_seconds(lambda: target.copy_(source), wait, kind)
    wide = source.view(torch.int32)
    read = size / _best_seconds(wide.max, wait, kind)
    part = cache // 8 if kind == "cuda" else min(cache // 8, 1 << 20)
    near, far = source[:part], target[:part]
    if kind == "cuda":
        inner = 2 * part / _node_seconds(torch, lambda: far.copy_(near))
    else:
        inner = 2 * part / _best_seconds(lambda: far.copy_(near), wait, kind)
    return {"copy_gbps": copy / 1e9, "read_gbps": read / 1e9, "l2_gbps": max(inner, copy) / 1e9}


def _products(torch: Any, wait: Call, kind: str, dtypes: tuple[str, ...]) -> dict[str, float]:  # noqa: ANN401
    found = {}
    for name in dtypes:
        # What a device has no units for is measured on less.
        native = (name == "float32") == (kind == "cpu")
        size = _MATRIX[kind] if native else _MATRIX[kind] // 2
        a, b = (torch.randn(size, size, device=kind).to(getattr(torch, name)) for _ in range(2))
        out = torch.empty_like(a)

        def call(a: Any = a, b: Any = b, out: Any = out) -> None:  # noqa: ANN401 - tensors
            torch.mm(a, b, out=out)

        found[name] = 2 * size**3 / _best_seconds(call, wait, kind) / 1e12
    return found


def _eight_bit(torch: Any, wait: Call) -> float | None:  # noqa: ANN401 - the module
    """Return the rate of 8-bit products, or None where the device has none."""
    size = _MATRIX["cuda"]
    one = torch.ones((), device="cuda")
    try:
        a, b = (torch.randn(size, size, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))

        def call() -> None:
            torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)

        return float(2 * size**3 / _best_seconds(call, wait, "cuda") / 1e12)
    except (RuntimeError, AttributeError, TypeError):
        return None


def _node_seconds(torch: Any, call: Call) -> float:  # noqa: ANN401 - the module
    """Return what one call takes inside a graph of many, seconds."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_NODES):
            call()
    return _best_seconds(graph.replay, torch.cuda.synchronize, "cuda") / _NODES
