"""How long one search takes from nothing: the whole process, against an empty one and against the naive stack.

    python tests/benchmarks/startup.py [--runs 15] [--root DIR] [--json]

Times on a shared machine wander, so all commands take turns and ratios within one run are what to quote. Byte code is
written to a folder of its own first, as an installation has it. The first use, which builds the index, is stated apart.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent
SCRIPT = "import sys; from kb.launch import main; sys.exit(main())"
NAIVE = ("typer", "chromadb", "sentence_transformers")
QUERY = "nvfp4 moe grouped gemm"
TARGET_MS, TARGET_MIB, TARGET_RATIO = 60.0, 20.0, 5.0


def run_once(argv: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Run one process to its end; return its wall time in ms and its peak memory in MiB."""
    began = time.perf_counter()
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = (time.perf_counter() - began) * 1000
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(argv)} ended with {process.returncode}")
    scale = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return elapsed, usage.ru_maxrss / scale


def missing(names: tuple[str, ...]) -> list[str]:
    """Return the packages of the naive stack that are not installed."""
    from importlib.util import find_spec

    return [name for name in names if find_spec(name) is None]


def measure(runs: int, root: Path) -> dict[str, object]:
    """Time every command, taking turns."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONPYCACHEPREFIX": str(Path(scratch, "bytecode")),
            "KB_CACHE_DIR": str(Path(scratch, "cache")),
        }
        base = Path(scratch, "base")
        # A copy, so that the first use is a first use and nothing changes the files meanwhile.
        shutil.copytree(root / "entries", base / "entries")
        search = [sys.executable, "-c", SCRIPT, "search", QUERY, "--root", str(base)]
        # Imports of the first use are compiled before it is timed.
        run_once(
            [sys.executable, "-c", "import kb.launch, kb.service.indexing, kb.store.writer, kb.store.files"],
            environment,
        )
        time.sleep(0.1)
        first_ms, first_mib = run_once(search, environment)
        run_once(search, environment)
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "kb search": search,
            "kb search --device": [*search, "--device", "H100"],
        }
        lacking = missing(NAIVE)
        if not lacking:
            commands["naive stack, imports alone"] = [sys.executable, "-c", f"import {', '.join(NAIVE)}"]
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for turn in range(runs):
            for name, argv in commands.items():
                if turn < 3 or not name.startswith("naive"):
                    samples[name].append(run_once(argv, environment))
    medians = {
        name: {"ms": statistics.median(ms for ms, _ in taken), "mib": max(mib for _, mib in taken), "runs": len(taken)}
        for name, taken in samples.items()
    }
    return {"commands": medians, "first_use": {"ms": first_ms, "mib": first_mib}, "not_installed": lacking}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Start-up time of kb search.")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="knowledge base to search")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.runs, options.root)
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    commands: dict[str, dict[str, float]] = found["commands"]  # type: ignore[assignment]
    bare = commands["python -c pass"]["ms"]
    for name, taken in commands.items():
        print(f"{name:<28} {taken['ms']:9.1f} ms  {taken['ms'] / bare:7.2f} x  {taken['mib']:7.1f} MiB")
    first: dict[str, float] = found["first_use"]  # type: ignore[assignment]
    name, took = "first use, builds the index", first["ms"]
    print(f"{name:<28} {took:9.1f} ms  {took / bare:7.2f} x  {first['mib']:7.1f} MiB")
    if found["not_installed"]:
        print(f"naive stack: not installed here: {', '.join(found['not_installed'])}")  # type: ignore[arg-type]
    else:
        naive = commands["naive stack, imports alone"]["ms"]
        print(
            f"kb search is {naive / commands['kb search']['ms']:.0f} times faster than the naive stack's imports alone"
        )
    print(f"targets: {TARGET_MS:.0f} ms, {TARGET_MIB:.0f} MiB, {TARGET_RATIO:.0f} x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
