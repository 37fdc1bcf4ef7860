"""Compile every kernel entry on a GPU, compare it with its reference, and print rough timings.

Not a record: timings share a process with the candidate and only show where work is needed. Needs torch, triton and
numpy; run from the repository root as ``PYTHONPATH=. python tests/gpu/smoke.py [--only TEXT] [--json FILE]``.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
import tomllib
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BANDWIDTH_GBPS = 4300.0
"""Copy bandwidth of an H200, GB/s, for a rough floor only."""
MATRIX_TFLOPS = 790.0
"""bf16 matrix rate of an H200, TFLOP/s, for a rough floor only."""


def folders(only: str) -> list[Path]:
    """Return the folders of all kernel entries whose id contains ``only``."""
    found = sorted((ROOT / "entries" / "kernel").glob("*/*/entry.toml"))
    return [file.parent for file in found if only in "/".join(file.parts[-3:-1])]


def judge_folder(folder: Path, *, timing: bool) -> list[dict[str, Any]]:
    """Compare (or time) one entry in this process; every failure becomes a row."""
    import torch

    from kb.validators import operators

    facts = tomllib.loads((folder / "entry.toml").read_text(encoding="utf-8"))
    spec = operators.load(facts["operator"])
    file, function = facts["entry_point"].split(":")
    loader = importlib.util.spec_from_file_location("candidate", folder / file)
    assert loader is not None
    assert loader.loader is not None
    module = importlib.util.module_from_spec(loader)
    loader.loader.exec_module(module)
    run = getattr(module, function)
    rows = []
    for workload in spec.workloads:
        if workload.dtype not in facts["dtypes"] or (timing and workload.use != "target"):
            continue
        row: dict[str, Any] = {"id": "/".join(folder.parts[-2:]), "axes": dict(workload.axes), "dtype": workload.dtype}
        row["use"], row["law"] = workload.use, workload.law
        if not admitted(facts, workload.axes):
            continue
        try:
            row.update(one_workload(spec, run, workload, timing=timing))
        except Exception as error:  # noqa: BLE001 - a smoke run reports every failure as a row
            row["verdict"] = "crashed"
            row["detail"] = f"{type(error).__name__}: {str(error)[:600]}"
            row["where"] = traceback.format_exc(limit=-2)[-600:]
            if "CUDA error" in str(error) or "illegal" in str(error):
                rows.append(row)
                break
        rows.append(row)
        torch.cuda.empty_cache()
    return rows


def admitted(facts: dict[str, Any], axes: Any) -> bool:  # noqa: ANN401 - plain TOML and a mapping
    """Tell whether the entry's limits hold at these axes."""
    for axis, rule in facts.get("limits", {}).items():
        size = axes.get(axis)
        if size is None:
            continue
        if size > rule.get("max", size) or size < rule.get("min", size) or size % rule.get("multiple_of", 1):
            return False
        if "in" in rule and size not in rule["in"]:
            return False
    return True


def one_workload(spec: Any, run: Any, workload: Any, *, timing: bool) -> dict[str, Any]:  # noqa: ANN401
    """Compare one workload on the device, or time it."""
    import torch

    from kb.validators.operators.spec import generator
    from kb.validators.runtime.compare import compare_output

    arguments = spec.laws[workload.law](workload.axes, workload.dtype, generator(7))
    cost = spec.cost(workload.axes, workload.dtype)
    moved = tuple(one.cuda() if isinstance(one, torch.Tensor) else one for one in arguments)
    if timing:
        from triton.testing import do_bench

        floor = max(cost.essential_bytes / BANDWIDTH_GBPS / 1e3, cost.flops / MATRIX_TFLOPS / 1e6)
        latency = do_bench(lambda: run(*moved), warmup=20, rep=60, return_mode="median") * 1e3
        return {"latency_us": round(latency, 2), "floor_us": round(floor, 2), "fraction": round(floor / latency, 3)}
    started = time.perf_counter()
    got = run(*moved)
    torch.cuda.synchronize()
    first = time.perf_counter() - started
    again = run(*moved)
    torch.cuda.synchronize()
    outputs = got if isinstance(got, (tuple, list)) else (got,)
    repeats = again if isinstance(again, (tuple, list)) else (again,)
    same = all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(outputs, repeats, strict=True))
    heavy = cost.flops > 2e13
    if heavy:
        return {"verdict": "ran", "first_s": round(first, 2), "deterministic": same}
    expected = [one.cpu() for one in spec.reference(*moved)]
    scales = [one.cpu() for one in spec.condition(*moved)] if spec.condition else [None] * len(expected)
    found = [
        compare_output(o, e, buffer=b, dtype=workload.dtype, error=spec.error, scale=s)
        for o, e, b, s in zip(outputs, expected, spec.outputs, scales, strict=True)
    ]
    bad = [one for one in found if one.verdict != "passed"]
    return {
        "verdict": bad[0].verdict if bad else "passed",
        "detail": bad[0].detail if bad else "",
        "worst": [one.max_normalised for one in found],
        "first_s": round(first, 2),
        "deterministic": same,
    }


def in_process(todo: list[Path], *, timing: bool, limit_s: int) -> list[dict[str, Any]]:
    """Run ``judge_folder`` in a process of its own, because one illegal access poisons a CUDA context.

    A process that ends early is followed by another for the rest of the folders.
    """
    rows: list[dict[str, Any]] = []
    while todo:
        command = [sys.executable, __file__, "--child", *map(str, todo), *(["--timing"] if timing else [])]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "0"}
        try:
            done = subprocess.run(command, capture_output=True, timeout=limit_s, env=environment, check=False)
            output, errors = done.stdout.decode(), done.stderr.decode()
        except subprocess.TimeoutExpired as late:
            output, errors = (late.stdout or b"").decode(), "timed out"
        parts = [json.loads(line[5:]) for line in output.splitlines() if line.startswith("ROWS ")]
        rows.extend(row for part in parts for row in part)
        if len(parts) == len(todo):
            return rows
        rows.append({"id": "/".join(todo[len(parts)].parts[-2:]), "verdict": "crashed", "detail": errors[-800:]})
        todo = todo[len(parts) + 1 :]
    return rows


def main() -> None:
    """Run all, print a table, and write the rows as JSON if asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--json", default="")
    parser.add_argument("--child", nargs="+", default=[])
    parser.add_argument("--timing", action="store_true")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--timing-limit", type=int, default=200)
    asked = parser.parse_args()
    began = time.perf_counter()
    if asked.child:
        for folder in asked.child:
            print("ROWS " + json.dumps(judge_folder(Path(folder), timing=asked.timing)), flush=True)
        return
    todo = folders(asked.only)
    with ThreadPoolExecutor(asked.workers) as pool:
        compared = list(pool.map(lambda folder: in_process([folder], timing=False, limit_s=150), todo))
    rows = [row for part in compared for row in part]
    failed = {row["id"] for row in rows if row.get("verdict") not in ("passed", "ran")}
    print(f"compared after {time.perf_counter() - began:.0f} s", flush=True)
    passed = [folder for folder in todo if "/".join(folder.parts[-2:]) not in failed]
    rows.extend(in_process(passed, timing=True, limit_s=asked.timing_limit))
    for row in rows:
        if row.get("verdict") not in ("passed", "ran", None):
            print(f"FAIL {row['id']} {row.get('axes')} {row.get('dtype')} {row['verdict']}: {row.get('detail')}")
            print("     " + row.get("where", "").replace("\n", "\n     "))
        elif row.get("deterministic") is False:
            print(f"NOT DETERMINISTIC {row['id']} {row['axes']}")
    for row in rows:
        if "latency_us" in row:
            axes = " ".join(f"{k}={v}" for k, v in row["axes"].items())
            print(
                f"{row['id']:55s} {row['latency_us']:10.1f} us {row['fraction']:6.1%} of floor  {row['dtype']} {axes}"
            )
    print(f"{len(todo)} entries, {len(failed)} with a failure, {len(rows)} rows")
    if asked.json:
        Path(asked.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
