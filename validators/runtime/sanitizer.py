"""compute-sanitizer on small shapes: accesses out of bounds, races, reads of unwritten memory.

The tool watches a worker from outside and has to be reached from inside, so this worker opens the device before it is
confined, and keeps its namespaces and its uid; Landlock, seccomp and the limits hold as ever. It decides on no values.
"""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kb.validators.runtime import replies, report, wire
from kb.validators.runtime.arena import Arena
from kb.validators.runtime.conversation import Conversation
from kb.validators.runtime.errors import JudgeError, WorkerEndedError
from kb.validators.runtime.launching import Launch, Process
from kb.validators.runtime.plan import Case, Plan
from kb.validators.runtime.sandbox import Limits
from kb.validators.runtime.starting import boot_command
from kb.validators.runtime.worker import Worker
from kb.validators.runtime.workplace import Workplace

TOOLS = ("memcheck", "racecheck", "initcheck")
ALONE = "alone"
"""Third argument of the stub: it is watched by a tool."""

_SEARCH = "/usr/local/cuda/bin"
_CALLS = 4
_START_S, _CALL_S = 240, 150
"""Under the tool a process starts, compiles and runs slowly: its first call on an H200 took more than a minute."""
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
_FINDING = re.compile(r"={9} +((?:Invalid|Error: Race|Uninitialized|Program hit|Out-of-bounds|Misaligned).*)")


def path() -> str | None:
    """Return where the tool is; None if it is not installed."""
    return shutil.which("compute-sanitizer", path=os.pathsep.join([os.environ.get("PATH", ""), _SEARCH]))


class _Tool:
    """Starts a worker under one tool."""

    def __init__(self, tool: str, log: Path) -> None:
        self.tool, self.log = tool, log

    def __call__(self, launch: Launch) -> Process:
        watch = [
            str(path()), "--tool", self.tool, "--log-file", str(self.log), "--target-processes", "application-only",
            "--report-api-errors", "no", "--destroy-on-device-error", "kernel", "--print-limit", "20",
            "--show-backtrace", "no",
        ]  # fmt: skip
        handles = [*map(str, launch.handles), ALONE]
        return subprocess.Popen(  # noqa: S603 - a tool of the toolchain and our own interpreter
            [*watch, *boot_command("kb.validators.runtime.stub", *handles)],
            stdin=subprocess.DEVNULL, stdout=launch.output, stderr=launch.output, cwd=launch.folder,
            # Every tensor has memory of its own, so that its neighbours are no part of it.
            env={**launch.environment, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
            pass_fds=launch.handles, start_new_session=True,
        )  # fmt: skip


def check(
    source: bytes,
    plan: Plan,
    talk_with: Any,  # noqa: ANN401 - makes a Conversation with a worker and an arena
    *,
    tools: Sequence[str],
    place: Workplace,
    limits: Limits,
    triton: bool,
    device: str,
) -> dict[str, Any]:
    """Run a candidate's smallest calls under each tool.

    Args:
        source: The candidate's file.
        plan: Its first cases are called, four at most.
        talk_with: Called with (worker, arena); returns the ``Conversation`` that places inputs.
        tools: Some of ``TOOLS``.
        place: For folders.
        limits: As for any worker on this device.
        triton: Import triton first.
        device: ``cuda:N``.

    Returns:
        Tool to ``state`` (``ran``, or why not), ``calls``, ``errors`` and the first findings.
    """
    found: dict[str, Any] = {}
    for tool in tools:
        if tool not in TOOLS or path() is None:
            found[tool] = {"state": "absent: compute-sanitizer was not found"}
            continue
        log = place.folder("sanitizer") / "log"
        arena = Arena(64 << 20)
        worker = Worker(
            source, place=place, arena=arena, limits=limits, triton=triton, device=device, spawn=_Tool(tool, log)
        )
        try:
            state, calls = _use(worker, talk_with(worker, arena), plan)
        finally:
            worker.end()
            arena.close()
        found[tool] = {"state": state, "calls": calls, **read(log)}
    return found


def _use(worker: Worker, talk: Conversation, plan: Plan) -> tuple[str, int]:
    """Load and call; returns how it ended and the number of calls that were made."""
    calls = 0
    try:
        worker.wait_ready(limit_s=_START_S)
        worker.open_build()
        failed = replies.failure(worker.ask({"op": "load"}, limit_s=_START_S))
        for case in _smallest(plan) if failed is None else ():
            message, _ = talk.message(case, talk.expectation.case(case.index))
            failed = replies.failure(worker.ask({**message, "op": "call"}, limit_s=_CALL_S))
            calls += 1
            if failed is not None:
                break
        with contextlib.suppress(wire.WireError):
            wire.send(worker.channel, {"op": "bye"})
        worker.wait(limit_s=30)
    except (WorkerEndedError, JudgeError) as error:
        return f"stopped: {report.escaped(str(error), 200)}", calls
    return "ran" if failed is None else f"raised: {failed[:200]}", calls


def _smallest(plan: Plan) -> list[Case]:
    """Return the first call of the workloads with the fewest elements, none of them empty."""
    sizes = []
    for case in plan.cases:
        axes = plan.workloads[case.workload].axes.values()
        if case.turn == 0 and min(axes, default=1) > 0:
            sizes.append((sum(axes), case.index, case))
    return [case for _, _, case in sorted(sizes, key=lambda one: one[:2])[:_CALLS]]


def read(log: Path) -> dict[str, Any]:
    """Return the number of errors and the first findings of a log.

    Where the tool came to no summary, what it had found counts; None if that is nothing.
    """
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {"errors": None, "first": []}
    summary = _SUMMARY.findall(text)
    lines = [report.escaped(one, 160) for one in _FINDING.findall(text)]
    errors = int(summary[-1]) if summary else len(lines) or None
    return {"errors": errors, "first": list(dict.fromkeys(lines))[:5]}
