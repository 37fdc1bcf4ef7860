"""Hold every baseline against its operator's bound on a GPU, eager and compiled; capture those that say they can be.

    PYTHONPATH=. python3 -m tests.gpu.baselines [--compiled] [--jobs 8] [--limit-s 100]

Prints one line a baseline and exits 1 if one is wrong. Needs one GPU, torch, triton and numpy. Eager ones meet every
awkward workload that they take; compiled ones the smallest of their targets, in processes of their own.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from kb.validators import baselines, operators
from kb.validators.baselines import Baseline
from kb.validators.operators.spec import Workload, generator
from kb.validators.runtime.compare import compare_call


def main() -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--one", metavar="OPERATOR/NAME")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--limit-s", type=float, default=100)
    asked = parser.parse_args()
    if asked.one:
        said, good = checked(baselines.find(*asked.one.split("/")))
        print(said)
        return 0 if good else 1
    every = [one for name in operators.VALUES for one in baselines.baselines(name) if one.compiled == asked.compiled]
    torch.set_num_threads(1)
    counts = {True: 0, False: 0, None: 0}
    deadline = time.monotonic() + asked.limit_s
    with ThreadPoolExecutor(asked.jobs) as pool:
        results = pool.map(lambda one: _apart(one, deadline), every) if asked.compiled else map(checked, every)
        for said, good in results:
            print(said, flush=True)
            counts[good] += 1
    name = torch.cuda.get_device_name()
    print(f"{name}: {counts[True]} baselines right, {counts[False]} wrong, {counts[None]} not tried")
    return 1 if counts[False] else 0


def _apart(one: Baseline, deadline: float) -> tuple[str, bool | None]:
    left = deadline - time.monotonic()
    label = f"{one.operator}/{one.name}"
    if left <= 5:
        return f"{label}: not tried, no time", None
    command = [sys.executable, "-m", "tests.gpu.baselines", "--one", label]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=left, check=False)
    except subprocess.TimeoutExpired:
        return f"{label}: not done in time", None
    said = done.stdout.strip() or done.stderr.strip()[-300:].replace("\n", " | ")
    return said, done.returncode == 0


def checked(one: Baseline) -> tuple[str, bool | None]:
    """Return what is said of a baseline, and whether it is right; None where its packages are missing."""
    began, label = time.monotonic(), f"{one.operator}/{one.name}"
    spec = operators.load(one.operator)
    space: dict[str, Any] = {}
    count, worst = 0, 0.0
    try:
        exec(compile(one.source, label, "exec"), space)  # noqa: S102 - our own files
        for workload in _workloads(one):
            arguments = spec.laws[workload.law](workload.axes, workload.dtype, generator(5))
            made = space["run"](*(_there(each) for each in arguments))
            made = tuple(each.cpu() for each in made) if isinstance(made, tuple) else made.cpu()
            found = compare_call(spec, arguments, made, dtype=workload.dtype, law=workload.law)
            if any(each.verdict != "passed" for each in found):
                return f"{label}: WRONG at {dict(workload.axes)} {workload.dtype} {workload.law}: {found}", False
            worst = max([worst, *(each.max_normalised or 0.0 for each in found)])
            count += 1
        captured = _captured(space["run"], one) if one.capture and count else "not captured"
    except ModuleNotFoundError as error:
        return f"{label}: {error}", None
    except Exception as error:  # noqa: BLE001 - whatever a library raises is what is to be said
        return f"{label}: {type(error).__name__}: {str(error)[:200]}", False
    took = time.monotonic() - began
    return f"{label}: {count} workloads, worst {worst:.2f} of the bound, {captured}, {took:.1f} s", count > 0


def _workloads(one: Baseline) -> Iterator[Workload]:
    spec = operators.load(one.operator)
    able = [each for each in spec.workloads if one.takes(each.axes, each.dtype, law=each.law)]
    awkward = [each for each in able if each.use == "awkward"]
    if awkward and not one.compiled:
        yield from awkward
        return
    targets = [each for each in able if each.use == "target"]
    yield min(targets, key=lambda each: spec.cost(each.axes, each.dtype).essential_bytes)


def _captured(run: Callable[..., Any], one: Baseline) -> str:
    """Capture one call in a graph, as timing does, after a warm-up on the same stream."""
    spec = operators.load(one.operator)
    workload = list(_workloads(one))[-1]
    arguments = [_there(each) for each in spec.laws[workload.law](workload.axes, workload.dtype, generator(6))]
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        for _ in range(2):
            run(*arguments)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        run(*arguments)
    graph.replay()
    torch.cuda.synchronize()
    return "captured"


def _there(value: object) -> object:
    return value.cuda() if isinstance(value, torch.Tensor) else value


if __name__ == "__main__":
    sys.exit(main())
