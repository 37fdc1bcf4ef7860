"""Compile every kernel entry on a GPU, compare it with its reference, and print rough timings.

Not a record: timings share a process with the candidate and only show where work is needed. Needs torch, triton and
numpy; run from the repository root as ``PYTHONPATH=. python tests/gpu/smoke.py [--only TEXT,TEXT] [--json FILE]``.
"""

import argparse
import contextlib
import fcntl
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BANDWIDTH_GBPS = 4300.0
"""Copy bandwidth of an H200, GB/s, for a rough floor only."""
MATRIX_TFLOPS = 790.0
"""bf16 matrix rate of an H200, TFLOP/s, for a rough floor only."""
FLUSH_BYTES = 256 << 20
"""Written before every timed call; several times the L2 of any target."""
REPEATS = 25
PROCESS_LIMIT_S = 200
HEAVY_FLOPS = 2e13
"""Beyond this the reference is not computed."""


def folders(only: str) -> list[Path]:
    """Return the folders of all kernel entries whose id contains one of the comma-separated texts of ``only``."""
    found = sorted((ROOT / "entries" / "kernel").glob("*/*/entry.toml"))
    texts = only.split(",")
    return [file.parent for file in found if any(text in "/".join(file.parts[-3:-1]) for text in texts)]


def lacking(facts: dict[str, Any]) -> str:
    """Return the required features that this device lacks, comma-separated; unknown features are assumed present."""
    import torch

    capability = torch.cuda.get_device_capability()
    present = {
        "bf16_mma": capability >= (8, 0),
        "cp_async": capability >= (8, 0),
        "fp8_mma": capability >= (8, 9),
        "wgmma": capability[0] == 9,
        "tma": capability >= (9, 0),
        "clusters": capability >= (9, 0),
        "tcgen05": capability[0] == 10,
        "fp4_mma": capability[0] >= 10,
    }
    return ", ".join(one for one in facts.get("requires", {}).get("features", ()) if not present.get(one, True))


@contextlib.contextmanager
def device_lock(*, alone: bool) -> Iterator[None]:
    """Hold the device: comparisons of several processes share it, a timing has it alone."""
    with Path(os.environ["SMOKE_LOCK"]).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def judge_folder(folder: Path, *, deadline: float) -> None:
    """Compare and time one entry in this process, printing a row a workload; every failure becomes a row."""
    import torch

    from kb.validators import operators

    facts = tomllib.loads((folder / "entry.toml").read_text(encoding="utf-8"))
    name = "/".join(folder.parts[-2:])
    if missing := lacking(facts):
        emit({"id": name, "verdict": "skipped", "detail": f"the device lacks {missing}"})
        return
    spec = operators.load(facts["operator"])
    file, function = facts["entry_point"].split(":")
    loader = importlib.util.spec_from_file_location("candidate", folder / file)
    assert loader is not None
    assert loader.loader is not None
    module = importlib.util.module_from_spec(loader)
    loader.loader.exec_module(module)
    run = getattr(module, function)
    for workload in spec.workloads:
        if workload.dtype not in facts["dtypes"] or not admitted(facts, workload.axes):
            continue
        row: dict[str, Any] = {"id": name, "axes": dict(workload.axes), "dtype": workload.dtype}
        row.update(use=workload.use, law=workload.law)
        try:
            one_workload(spec, run, workload, row, deadline=deadline)
        except Exception as error:  # noqa: BLE001 - a smoke run reports every failure as a row
            row["verdict"] = "crashed"
            row["detail"] = f"{type(error).__name__}: {str(error)[:600]}"
            row["where"] = traceback.format_exc(limit=-2)[-600:]
        emit(row)
        if "CUDA error" in row.get("detail", "") or "illegal memory" in row.get("detail", ""):
            return
        torch.cuda.empty_cache()


def emit(row: dict[str, Any]) -> None:
    """Hand a row to the parent process."""
    print("ROW " + json.dumps(row), flush=True)


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


def one_workload(spec: Any, run: Any, workload: Any, row: dict[str, Any], *, deadline: float) -> None:  # noqa: ANN401
    """Compare one workload on the device and time it if it is a target shape; findings go into ``row``."""
    import torch

    from kb.validators.operators.spec import generator

    arguments = spec.laws[workload.law](workload.axes, workload.dtype, generator(7))
    cost = spec.cost(workload.axes, workload.dtype)
    with device_lock(alone=False):
        moved = tuple(one.cuda() if isinstance(one, torch.Tensor) else one for one in arguments)
        started = time.perf_counter()
        got = run(*moved)
        torch.cuda.synchronize()
        row["first_s"] = round(time.perf_counter() - started, 2)
        again = run(*moved)
        torch.cuda.synchronize()
        outputs = got if isinstance(got, (tuple, list)) else (got,)
        repeats = again if isinstance(again, (tuple, list)) else (again,)
        row["deterministic"] = all(
            torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(outputs, repeats, strict=True)
        )
        if cost.flops > HEAVY_FLOPS:
            row["verdict"] = "ran"
        else:
            compare(spec, workload, moved, arguments, outputs, row)
        torch.cuda.synchronize()
    if workload.use == "target" and row["verdict"] in ("passed", "ran") and time.time() < deadline:
        with device_lock(alone=True):
            row.update(timings(lambda: run(*moved)))
        floor = max(cost.essential_bytes / BANDWIDTH_GBPS / 1e3, cost.flops / matrix_tflops(spec.name) / 1e6)
        row.update(floor_us=round(floor, 2), fraction=round(floor / row["latency_us"], 3))


def matrix_tflops(operator: str) -> float:
    """Return the matrix rate for the floor, TFLOP/s; FP8 operands go twice as fast as bfloat16."""
    return 2 * MATRIX_TFLOPS if operator in ("gemm_fp8", "gemm_fp8_block") else MATRIX_TFLOPS


def compare(spec: Any, workload: Any, moved: Any, arguments: Any, outputs: Any, row: dict[str, Any]) -> None:  # noqa: ANN401
    """Put the verdict into ``row``; the reference runs on the device, or on the CPU if it can only run there."""
    from kb.validators.runtime.compare import compare_output

    try:
        expected = spec.reference(*moved)
        scales = spec.condition(*moved) if spec.condition else [None] * len(expected)
    except Exception:  # noqa: BLE001 - whatever a reference written for the CPU raises on CUDA tensors
        row["reference"] = "cpu"
        expected = spec.reference(*arguments)
        scales = spec.condition(*arguments) if spec.condition else [None] * len(expected)
    found = [
        compare_output(
            o,
            e.cpu(),
            buffer=b,
            dtype=workload.dtype,
            error=spec.error_under(workload.law),
            scale=None if s is None else s.cpu(),
        )
        for o, e, b, s in zip(outputs, expected, spec.outputs, scales, strict=True)
    ]
    bad = [one for one in found if one.verdict != "passed"]
    row["verdict"] = bad[0].verdict if bad else "passed"
    row["detail"] = bad[0].detail if bad else ""
    row["worst"] = [one.max_normalised for one in found]


def timings(call: Callable[[], object]) -> dict[str, Any]:
    """Time a call on the device with a cold L2, and on the host as called.

    The device part replays a CUDA graph where the call can be captured: launching two small kernels from Python takes
    longer than flushing the L2 does, so that events around plain launches would time the host.
    """
    import torch

    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    mode, replay = "graph", call
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        replay = graph.replay
    except Exception:  # noqa: BLE001 - not capturable
        mode = "eager"
        torch.cuda.synchronize()
    event: Any = torch.cuda.Event
    pairs = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(REPEATS)]
    for start, end in pairs:
        flush.zero_()
        start.record()
        replay()
        end.record()
    torch.cuda.synchronize()
    samples = sorted(start.elapsed_time(end) * 1e3 for start, end in pairs)
    began = time.perf_counter()
    for _ in range(REPEATS):
        call()
    torch.cuda.synchronize()
    as_called = (time.perf_counter() - began) / REPEATS * 1e6
    return {"latency_us": round(samples[REPEATS // 2], 2), "as_called_us": round(as_called, 1), "mode": mode}


def in_process(folder: Path, *, deadline: float) -> list[dict[str, Any]]:
    """Run ``judge_folder`` in a process of its own, because one illegal access poisons a CUDA context."""
    name = "/".join(folder.parts[-2:])
    command = [sys.executable, __file__, "--child", str(folder), "--deadline", str(deadline)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "0"}
    try:
        done = subprocess.run(command, capture_output=True, timeout=PROCESS_LIMIT_S, env=environment, check=False)
        output, errors = done.stdout.decode(), "" if done.returncode == 0 else done.stderr.decode()[-800:]
    except subprocess.TimeoutExpired as late:
        output, errors = (late.stdout or b"").decode(), f"ended after {PROCESS_LIMIT_S} s"
    rows: list[dict[str, Any]] = [json.loads(line[4:]) for line in output.splitlines() if line.startswith("ROW ")]
    if errors:
        rows.append({"id": name, "verdict": "crashed", "detail": errors})
    return rows


def report(rows: list[dict[str, Any]]) -> None:
    """Print failures, then what was skipped or varies, then the timings; one short line each."""
    failed = [row for row in rows if row["verdict"] not in ("passed", "ran", "skipped")]
    print(f"{len(failed)} failures in {len(rows)} rows")
    for row in failed:
        detail = " ".join(str(row.get("detail")).split())
        print(f"FAIL {row['id']} {short(row)} {row['verdict']}: {detail[-260:]}")
    for row in rows:
        if row["verdict"] == "skipped":
            print(f"SKIP {row['id']}: {row['detail']}")
        elif row.get("deterministic") is False:
            print(f"NOT DETERMINISTIC {row['id']} {short(row)}")
        elif row.get("reference") == "cpu" and row["use"] == "awkward":
            print(f"CPU-ONLY REFERENCE {row['id']} {short(row)}")
    for row in rows:
        if "latency_us" in row:
            print(
                f"{row['id'][:46]:46s} {row['latency_us']:8.1f} us {row['fraction']:6.1%} "
                f"{row['mode'][0]} {row['as_called_us']:7.0f}  {short(row)}"
            )


def short(row: dict[str, Any]) -> str:
    """Return the sizes of the axes in order, and the dtype."""
    return ",".join(map(str, row.get("axes", {}).values())) + " " + str(row.get("dtype", ""))


def main() -> None:
    """Run all, print a table, and write the rows as JSON if asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="comma-separated texts; an entry whose id contains one is run")
    parser.add_argument("--json", default="")
    parser.add_argument("--child", default="")
    parser.add_argument("--deadline", type=float, default=0.0)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--timing-limit", type=int, default=240, help="nothing is timed later than this, seconds")
    asked = parser.parse_args()
    if asked.child:
        judge_folder(Path(asked.child), deadline=asked.deadline)
        return
    began = time.time()
    todo = folders(asked.only)
    with tempfile.NamedTemporaryFile() as lock, ThreadPoolExecutor(asked.workers) as pool:
        os.environ.setdefault("SMOKE_LOCK", lock.name)
        parts = list(pool.map(lambda one: in_process(one, deadline=began + asked.timing_limit), todo))
    rows = [row for part in parts for row in part]
    if asked.json:
        Path(asked.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    report(rows)
    print(f"{len(todo)} entries in {time.time() - began:.0f} s")


if __name__ == "__main__":
    main()
