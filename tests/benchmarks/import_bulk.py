"""Generate many tuned files in vLLM's form, import them in one command, and say what it took.

python tests/benchmarks/import_bulk.py [--drafts 100000] [--keep DIR]
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DEVICES = ("NVIDIA_H100_80GB_HBM3", "NVIDIA_H200", "NVIDIA_B200", "AMD_Instinct_MI300X", "NVIDIA_L40S")
LICENSE = "Permission is hereby granted, free of charge\nThe above copyright notice and this permission notice\n"


def generate(folder: Path, count: int) -> None:
    """Write ``count`` files, 1,000 a folder, no two of the same values."""
    folder.mkdir()
    (folder / "LICENSE").write_text(LICENSE, encoding="utf-8")
    for number in range(count):
        inner = folder / f"part{number // 1000:04}"
        inner.mkdir(exist_ok=True)
        device = DEVICES[number % len(DEVICES)]
        experts, width = 1 + number // 4096, 1 + number % 4096
        rows = {
            str(1 << power): {
                "BLOCK_SIZE_M": 16 << (number + power) % 4,
                "BLOCK_SIZE_N": 32,
                "BLOCK_SIZE_K": 64,
                "GROUP_SIZE_M": 1 + (number >> power) % 64,
                "num_warps": 4,
                "num_stages": 2 + power % 3,
            }
            for power in range(14)
        }
        name = f"E={experts},N={width},device_name={device},dtype=fp8_w8a8.json"
        (inner / name).write_text(json.dumps(rows, indent=4), encoding="utf-8")


def command(*words: str) -> dict[str, float | str]:
    """Run one command of kb and return what it took: seconds, peak memory, last line."""
    began = time.perf_counter()
    with subprocess.Popen([sys.executable, "-m", "kb", *words], stdout=subprocess.PIPE, text=True) as process:
        text = process.stdout.read() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"kb {' '.join(words)} ended with {process.returncode}")
    lines = text.strip().splitlines()
    return {
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mib": round(usage.ru_maxrss / 1024),
        "said": lines[-1] if lines else "",
    }


def main() -> None:
    """Run all and print a line a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drafts", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="work here and leave everything")
    parser.add_argument("--steps", nargs="+", default=["dry run", "write", "again", "index", "search"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = options.keep or Path(scratch)
        place.mkdir(exist_ok=True)
        source, root = place / "source", str(place / "kb")
        generate(source, options.drafts)
        command("init", root)
        for name, words in {
            "dry run": ("import", str(source), "--root", root),
            "write": ("import", str(source), "--root", root, "--write"),
            "again": ("import", str(source), "--root", root, "--write"),
            "index": ("index", "--no-embeddings", "--root", root),
            "search": ("search", "tuned fused moe E=3 N=77 fp8", "--root", root, "--limit", "1"),
        }.items():
            if name in options.steps:
                print(f"{name}: {command(*words)}", flush=True)
    print(f"peak of this script: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")


if __name__ == "__main__":
    main()
