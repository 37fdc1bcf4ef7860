"""How long one honest float32 candidate takes to be judged, start-up included, and with --suite the whole red team.

    python -m tests.benchmarks.judge [--runs 5] [--suite] [--jobs 2] [--json]

Each judgement runs in a process of its own, as a command does. Targets: 15 s a candidate, 600 s for the suite on two
cores.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
TARGET_S, TARGET_SUITE_S = 15.0, 600.0
SOURCE = """
import torch

def run(x, weight, eps=1e-6):
    return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight).to(x.dtype)
"""
SCRIPT = f"""
import json
from kb.validators.runtime.starting import prepare
prepare()
from kb.validators.runtime.judge import Options, judge
found = judge("rmsnorm", {SOURCE.encode()!r}, options=Options(dtypes=["float32"]))
print(json.dumps({{"verdict": found.verdict, "seconds": dict(found.seconds)}}))
"""


def once() -> dict[str, float]:
    """Judge once in a fresh process; return the seconds of the whole and of its parts."""
    began = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    elapsed = time.perf_counter() - began
    found = json.loads(done.stdout)
    if found["verdict"] != "accepted":
        raise SystemExit(f"an honest candidate was not accepted: {found}")
    return {"whole": elapsed, **found["seconds"]}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--suite", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = [once() for _ in range(given.runs)]
    parts = {name: round(statistics.median(row[name] for row in rows), 2) for name in rows[0]}
    result: dict[str, object] = {"judge_s": parts, "target_s": TARGET_S, "runs": given.runs, "cores": os.cpu_count()}
    met = parts["whole"] < TARGET_S
    if given.suite:
        from tests.redteam.repeat import once as suite
        from tests.redteam.repeat import wrong

        found, elapsed = suite(given.jobs)
        result |= {"suite_s": round(elapsed, 1), "suite_target_s": TARGET_SUITE_S, "unexpected": wrong(found)}
        met = met and elapsed < TARGET_SUITE_S and not wrong(found)
    result["met"] = met
    print(json.dumps(result) if given.json else "\n".join(f"{name}: {value}" for name, value in result.items()))
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
