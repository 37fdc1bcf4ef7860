"""Run the whole red team several times, and say how often each verdict was the expected one.

    python -m tests.redteam.repeat [--times 10] [--jobs 2] [--table]

``--table`` writes docs/redteam.md from the last run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.redteam.samples import CHEATS, ELSEWHERE, HERE, HONEST

ROOT = HERE.parents[1]
SAMPLES = {one.name: one for one in (*CHEATS, *HONEST)}
HEAD = """\
# The red team

Every exploit below was run against the judge, and every honest look-alike as well. Rows are those of the catalogue of
public exploits: A forges correctness, B exploits inputs, C lowers precision, D keeps state, E steals the reference, F
forges time, G tampers with the environment, H forges provenance, I abuses resources, J forges communication, K hides
memory. One of the reasons must be given.

Written by `python -m tests.redteam.repeat --table`; the tests check that it names every file.

"""


def once(jobs: int) -> tuple[dict[str, dict[str, object]], float]:
    """Run all samples; return what the judge said by name, and the seconds it took."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.jsonl")
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "test_redteam.py")]
        argv += ["-k", "cheat or honest", *(["-n", str(jobs)] if jobs > 1 else [])]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KB_REDTEAM_LOG": str(log)}
        began = time.perf_counter()
        subprocess.run(argv, env=environment, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
        elapsed = time.perf_counter() - began
        rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
    return {str(row["name"]): row for row in rows}, elapsed


def wrong(found: dict[str, dict[str, object]]) -> list[str]:
    """Name the samples whose verdict is missing or another one than expected."""
    names = []
    for name, sample in SAMPLES.items():
        row = found.get(name)
        reasons = row["reasons"] if row else ()
        if row is None or not isinstance(reasons, list) or not sample.agrees(str(row["verdict"]), reasons):
            names.append(name)
    return names


def table(found: dict[str, dict[str, object]]) -> str:
    """Return docs/redteam.md."""
    text = [HEAD, "## Cheats\n\n| row | file | what it does | expected | happened |\n| --- | --- | --- | --- | --- |\n"]
    for name, one in SAMPLES.items():
        if not one.row:
            continue
        row = found.get(name, {"verdict": "?", "reasons": []})
        reasons = row["reasons"] if isinstance(row["reasons"], list) else []
        happened = f"{row['verdict']}: {', '.join(reasons)}"
        text.append(f"| {one.row} | `{name}` | {one.summary} | {one.expected} | {happened} |\n")
    text.append("\n## Rows held elsewhere\n\n")
    text += [f"- {row}: {where}\n" for row, where in ELSEWHERE.items()]
    text.append("\n## Honest look-alikes\n\n| family | file | what it does | expected | happened |\n")
    text.append("| --- | --- | --- | --- | --- |\n")
    for name, one in SAMPLES.items():
        if not one.row:
            happened = str(found.get(name, {"verdict": "?"})["verdict"])
            family = one.path.parent.name.upper()
            text.append(f"| {family} | `{name}` | {one.summary} | {one.expected} | {happened} |\n")
    return "".join(text)


def main() -> None:
    """Run, count, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    failures: Counter[str] = Counter()
    for turn in range(1, given.times + 1):
        found, elapsed = once(given.jobs)
        bad = wrong(found)
        failures.update(bad)
        print(f"run {turn}: {len(SAMPLES) - len(bad)} of {len(SAMPLES)} as expected in {elapsed:.0f} s", flush=True)
        for name in bad:
            print(f"  {name}: {json.dumps(found.get(name))}", flush=True)
        if given.table:
            (ROOT / "docs" / "redteam.md").write_text(table(found), encoding="utf-8")
    print(f"{sum(failures.values())} unexpected verdicts in {given.times} runs of {len(SAMPLES)}")
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
