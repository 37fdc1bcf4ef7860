"""Judge every allocation entry on a GPU in one call, beside torch's own allocator, and print and write the figures.

Blocks lie in real device memory: contents are written and read there, and used memory is read through the management
library. Needs torch and numpy; run from the repository root as
``PYTHONPATH=. python tests/gpu/allocation.py [--only TEXT,TEXT] [--json FILE] [--workers 8] [--device cuda:0]``.
Not a record: ``kb bundle`` and ``kb accept`` make records of the same judgements.
"""

import argparse
import json
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 200
"""No judgement may take longer than this."""

SWITCH = 'torch.cuda.memory._set_allocator_settings("expandable_segments:True")'
"""The line of the entry whose absence is torch's allocator with its default settings."""


def candidates(only: str) -> dict[str, tuple[str, bytes]]:
    """Return name to operator and source of all entries that contain one of the comma-separated texts of ``only``."""
    found: dict[str, tuple[str, bytes]] = {}
    for file in sorted((ROOT / "entries" / "allocation").glob("*/*/entry.toml")):
        facts = tomllib.loads(file.read_text(encoding="utf-8"))
        source = (file.parent / facts["entry_point"].partition(":")[0]).read_bytes()
        found["/".join(file.parts[-3:-1])] = (facts["operator"], source)
    switched = found["workspace_plan/torch-expandable-segments"][1]
    plain = switched.replace(SWITCH.encode(), b"pass")
    found["torch/default-segments"] = ("workspace_plan", plain)
    found["baseline/best-fit"] = (
        "workspace_plan",
        (ROOT / "validators/baselines/workspace_plan/best_fit.py").read_bytes(),
    )
    return {name: one for name, one in found.items() if any(text in name for text in only.split(","))}


def judge_here(name: str, device: str) -> None:
    """Judge one candidate in this process and print its report as one line."""
    from kb.validators.runtime.errors import JudgeError
    from kb.validators.runtime.judge import Options, judge

    operator, source = candidates(name)[name]
    began = time.perf_counter()
    try:
        row = judge(operator, source, options=Options(device=device, call_limit_s=60)).to_json()
        kept = ("verdict", "reasons", "details", "memory", "seconds", "output", "blocked", "sandbox")
        row = {key: row[key] for key in kept}
    except JudgeError as error:
        row = {"verdict": "not judged", "details": [f"{error.message} ({error.hint})"], "memory": {}}
    row |= {"name": name, "operator": operator, "wall_s": round(time.perf_counter() - began, 1)}
    print("ROW " + json.dumps(row), flush=True)


def in_process(name: str, device: str) -> dict[str, Any]:
    """Judge one candidate in a process of its own."""
    command = [sys.executable, __file__, "--child", name, "--device", device]
    try:
        done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False, cwd=ROOT)
        output, errors = done.stdout.decode(), done.stderr.decode()[-1500:]
    except subprocess.TimeoutExpired:
        output, errors = "", f"ended after {LIMIT_S} s"
    rows = [json.loads(line[4:]) for line in output.splitlines() if line.startswith("ROW ")]
    return rows[-1] if rows else {"name": name, "verdict": "crashed", "details": [errors], "memory": {}}


def show(row: dict[str, Any]) -> None:
    """Print one judgement: its verdict, and a line a trace that has figures."""
    memory = row.get("memory") or {}
    print(f"{row['name']:46s} {row['verdict']} {', '.join(row.get('reasons', ()))} {row.get('wall_s')} s")
    for detail in row.get("details", ())[:3]:
        print(f"    {detail[:300]}")
    for one in memory.get("traces", ()):
        if one.get("contents") in ("drawn", "fitted") and ("fragmentation" in one or "served" in one):
            print("    " + " ".join(f"{key}={value}" for key, value in _figures(one).items()))


def _figures(one: dict[str, Any]) -> dict[str, Any]:
    names = (
        "law", "contents", "live_bytes", "peak_bytes", "outside_bytes", "host_bytes", "fragmentation", "full_at",
        "steps", "computed_tokens", "preemptions", "graphs", "padded", "served", "us_per_operation",
    )  # fmt: skip
    found = {name: one[name] for name in names if one.get(name) is not None}
    for name, value in found.items():
        if name.endswith("_bytes"):
            found[name] = f"{value / (1 << 20):.1f}M"
        elif isinstance(value, float):
            found[name] = round(value, 3)
    rows = {name: row.get("fragmentation") for name, row in (one.get("baselines") or {}).items() if row}
    return found | {name: round(value, 2) for name, value in rows.items() if value is not None}


def main() -> None:
    """Run all, print a table, and write the rows as JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", default="")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--child", default="")
    asked = parser.parse_args()
    if asked.child:
        judge_here(asked.child, asked.device)
        return
    began = time.perf_counter()
    with ThreadPoolExecutor(asked.workers) as pool:
        rows = list(pool.map(lambda name: in_process(name, asked.device), candidates(asked.only)))
    if asked.json:
        Path(asked.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    for row in rows:
        show(row)
    accepted = sum(row["verdict"] == "accepted" for row in rows)
    print(f"{accepted} of {len(rows)} accepted in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
