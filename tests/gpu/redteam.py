"""Run the red team of the GPU and write docs/redteam-cuda.md.

    PYTHONPATH=. python3 -m tests.gpu.redteam [--only TEXT,TEXT] [--jobs 5] [--log FILE] [--table]

Needs one GPU, torch, triton and numpy. Every sample is judged by a process of its own; several share the device, which
matters to clocks and not to values.
"""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests.gpu.samples import CHEATS, HERE, HONEST

ROOT = HERE.parents[1]
ALL = {one.name: one for one in (*CHEATS, *HONEST)}
LIMIT_S = 400
WHERE = ("device", "driver", "torch", "triton")
HEAD = """\
# The red team on a GPU

Exploits of the catalogue that need a GPU, and honest look-alikes, each judged for values on {device} (driver {driver},
torch {torch}, triton {triton}). One of the reasons must be given. A cheat that forges time alone has right values and
is accepted for them: what it gains is a matter of the clocks.

Written by `PYTHONPATH=. python3 -m tests.gpu.redteam --log FILE --table`; with `--from-logs FILE …` from logs of
several runs, the last row of a candidate counting.

"""


def one(name: str) -> dict[str, Any]:
    """Judge one sample in this process; returns what is shown of it."""
    from kb.validators import operators
    from kb.validators.runtime import fingerprint
    from kb.validators.runtime.errors import JudgeError
    from kb.validators.runtime.judge import Options, judge

    chosen = ALL[name]
    workloads = [w for w in operators.load(chosen.sample.operator).workloads if w.use in chosen.uses]
    options = Options(
        device="cuda:0", calls=(3, 4), workloads=workloads, call_limit_s=60, load_limit_s=150, sanitizers=chosen.tools
    )
    began = time.time()
    try:
        found = judge(chosen.sample.operator, chosen.sample.path.read_bytes(), options=options)
    except JudgeError as error:
        return {"name": name, "verdict": "no verdict", "reasons": [], "details": [error.message, error.hint]}
    facts, software = fingerprint.cuda("cuda:0"), fingerprint.software()
    return {
        "name": name, "verdict": found.verdict, "reasons": list(found.reasons), "details": list(found.details[:4]),
        "where": {"device": facts["name"], "driver": facts["driver"], **{k: software.get(k) for k in WHERE[2:]}},
        "seconds": dict(found.seconds), "all_s": round(time.time() - began, 1), "kernels": dict(found.kernels),
        "blocked": list(found.blocked), "sandbox": dict(found.sandbox), "ghosts": dict(found.ghosts),
        "sanitizer": dict(found.sanitizer), "output": found.output[-600:], "calls": len(found.cases),
    }  # fmt: skip


def in_process(name: str) -> dict[str, Any]:
    """Judge one sample in a process of its own."""
    command = [sys.executable, "-m", "tests.gpu.redteam", "--one", name]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"name": name, "verdict": "no verdict", "reasons": [], "details": [f"nothing within {LIMIT_S} s"]}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return {"name": name, "verdict": "no verdict", "reasons": [], "details": [done.stderr[-1500:]]}
    row: dict[str, Any] = json.loads(lines[-1])
    return row


def expected(row: dict[str, Any]) -> bool:
    """Tell whether a sample was judged as its docstring says."""
    return ALL[row["name"]].sample.agrees(row["verdict"], row["reasons"])


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Return docs/redteam-cuda.md."""
    where = next((row["where"] for row in rows.values() if "where" in row), dict.fromkeys(WHERE, "?"))
    text = [
        HEAD.format(**where),
        "## Cheats\n\n| row | file | what it does | expected | happened |\n| --- | --- | --- | --- | --- |\n",
    ]
    for sample in CHEATS:
        row, what = rows.get(sample.name, {"verdict": "?", "reasons": []}), sample.sample
        wanted = what.expected + (" for values; forges time" if sample.forges_time else "")
        happened = f"{row['verdict']}: {', '.join(row['reasons'])}".rstrip(": ")
        text.append(f"| {what.row} | `{sample.name}` | {what.summary} | {wanted} | {happened} |\n")
    text.append("\n## Honest look-alikes\n\n| file | what it does | happened | own kernels' share of device time |\n")
    text.append("| --- | --- | --- | --- |\n")
    for sample in HONEST:
        row = rows.get(sample.name, {"verdict": "?"})
        share = row.get("kernels", {}).get("own_share")
        shown = "nothing ran" if share is None else f"{share:.0%}"
        text.append(f"| `{sample.name}` | {sample.sample.summary} | {row['verdict']} | {shown} |\n")
    return "".join(text)


def read_logs(names: list[str]) -> dict[str, dict[str, Any]]:
    """Return the last row of each sample in some logs."""
    lines = [line for name in names for line in Path(name).read_text(encoding="utf-8").splitlines()]
    return {row["name"]: row for row in map(json.loads, lines)}


def main() -> None:
    """Run, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--log", default="")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--from-logs", nargs="*", default=[], help="make the table from logs of earlier runs")
    parser.add_argument("--one", default="")
    given = parser.parse_args()
    if given.from_logs:
        (ROOT / "docs" / "redteam-cuda.md").write_text(table(read_logs(given.from_logs)), encoding="utf-8")
        return
    if given.one:
        print(json.dumps(one(given.one)), flush=True)
        return
    names = [name for name in ALL if any(text in name for text in given.only.split(","))]
    began = time.time()
    rows: dict[str, dict[str, Any]] = {}
    with ThreadPoolExecutor(given.jobs) as pool:
        for one_done in as_completed([pool.submit(in_process, name) for name in names]):
            row = one_done.result()
            rows[row["name"]] = row
            if given.log:
                with Path(given.log).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            mark = "ok " if expected(row) else "BAD"
            print(mark, row["name"], row["verdict"], row["reasons"], row.get("all_s"), flush=True)
            if mark == "BAD":
                print("   ", json.dumps(row["details"])[:700], row.get("output", "")[-300:], flush=True)
    bad = [name for name, row in rows.items() if not expected(row)]
    print(f"{len(rows) - len(bad)} of {len(rows)} as expected in {time.time() - began:.0f} s", flush=True)
    if given.table:
        (ROOT / "docs" / "redteam-cuda.md").write_text(table(rows), encoding="utf-8")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
