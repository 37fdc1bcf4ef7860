"""A lane of a bundle: faults of the judge's own, and steps alone that do not end."""

import argparse
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kb.validators.runtime import halting, turns
from kb.validators.runtime.lane import Lane

INNER = """import json, os, sys, time
out = os.fdopen(int(sys.argv[1]), "w")
def say(**said):
    out.write(json.dumps(said) + chr(10)); out.flush()
facts = {"name": "here", "arch": "cpu"}
say(ready=facts, toolchain="none", candidates_read=[])
for line in sys.stdin:
    order = json.loads(line)
    say(step="drawing contents")
    if order["id"] == "fault":
        say(failed="KeyError: 3", log="Traceback: here", phase="drawing", seconds={"drawing": 2.5})
    elif order["id"] == "ends":
        sys.stderr.write("Traceback: out of the blue"); sys.stderr.flush()
        os._exit(7)
    elif order["id"] == "skips":
        say(skipped="no memory", log="Traceback: memory", phase="alone", seconds={"alone": 1.0})
    else:
        say(needs="alone", peaks=None)
        sys.stdin.readline()
        if order["id"] == "stuck":
            time.sleep(60)
        say(evidence={"entry": {"id": order["id"]}}, samples=None, peaks=None)
"""


class Run:
    """What a lane needs, with a log of what it is told."""

    def __init__(self, home: Path, names: list[str], *, alone_limit_s: float | None) -> None:
        self.archive, self.home = home / "job.pyz", home
        self.facts: dict[str, Any] = {}
        self.peaks: dict[str, Any] | None = None
        self.asked = argparse.Namespace(device="cpu", entry_limit_s=50.0, alone_limit_s=alone_limit_s, quiet=True)
        self.broken = self.over = False
        self.count = len(names)
        self.deadline: float | None = None
        self.turns = turns.Turns()
        self.halt: halting.Halt | None = None
        self.threads: int | None = None
        self.lanes: list[Lane] = []
        self.waiting = deque(names)
        self.filed: list[str] = []
        self.skipped: dict[str, dict[str, Any]] = {}
        self.spent: list[tuple[str, float]] = []

    def next(self) -> dict[str, Any] | None:
        if not self.waiting:
            return None
        return {"id": self.waiting.popleft(), "version": 1, "number": 1, "runs_on": {"cpu": None}}

    def others(self, lane: Lane) -> list[int]:
        return [one.inner.process.pid for one in self.lanes if one is not lane and one.inner is not None]

    def meet(self, said: Mapping[str, Any]) -> None:
        self.facts = said["ready"]

    def learn(self, measured: dict[str, Any] | None) -> None:
        pass

    def keep_held(self, held: dict[str, Any] | None) -> None:
        pass

    def file(self, said: Mapping[str, Any], seconds: float) -> None:
        self.filed.append(said["evidence"]["entry"]["id"])

    def done(self, order: Mapping[str, Any], label: str, skipped: dict[str, Any] | None) -> None:
        if skipped is not None:
            self.skipped[order["id"]] = skipped

    def spend(self, phase: str, seconds: float, label: str) -> None:
        self.spent.append((phase, seconds))


def ran(folder: Path, names: list[str], *, alone_limit_s: float | None = None) -> Run:
    home = folder / "home"
    runtime = home / "kb" / "validators" / "runtime"
    runtime.mkdir(parents=True)
    for one in (home / "kb", home / "kb" / "validators", runtime):
        (one / "__init__.py").write_text("", encoding="utf-8")
    body = "".join(f"    {line}\n" for line in INNER.splitlines())
    (runtime / "boxed.py").write_text(f"def main():\n{body}", encoding="utf-8")
    run = Run(home, names, alone_limit_s=alone_limit_s)
    lane = Lane(run)
    try:
        lane.work()
    finally:
        lane.end()
    return run


def test_a_fault_of_the_judge_costs_one_entry_and_says_phase_seconds_and_traceback(tmp_path: Path) -> None:
    run = ran(tmp_path, ["fault", "ends", "skips", "good"])
    assert run.filed == ["good"]
    assert run.broken
    fault = run.skipped["fault"]
    assert "failed in phase drawing: KeyError: 3; the last step was: drawing contents" in fault["reason"]
    assert (fault["log"], fault["phase"], fault["seconds"]) == ("Traceback: here", "drawing", {"drawing": 2.5})
    assert "ended with code 7" in run.skipped["ends"]["reason"]
    assert run.skipped["ends"]["log"] == "Traceback: out of the blue"
    assert run.skipped["skips"]["reason"] == "no memory"
    assert run.skipped["skips"]["log"] == "Traceback: memory"
    assert [phase for phase, _ in run.spent] == ["process", "process", "process", "alone"]


def test_whoever_is_stuck_alone_is_given_up_and_the_next_one_gets_its_turn(tmp_path: Path) -> None:
    began = time.monotonic()
    run = ran(tmp_path, ["stuck", "good"], alone_limit_s=0.4)
    assert time.monotonic() - began < 20
    assert run.filed == ["good"]
    assert "given up after 0 s alone" in run.skipped["stuck"]["reason"]
    run.turns.take(turns.ALONE, deadline=time.monotonic() + 1)


@pytest.mark.parametrize(("device", "effort", "limit_s"), [("cuda:0", {"pairs": 6}, 90.0), ("cpu", {"pairs": 6}, None)])
def test_a_quick_timing_on_a_gpu_may_be_alone_for_a_minute_and_a_half(
    tmp_path: Path, device: str, effort: dict[str, int], limit_s: float | None
) -> None:
    run = Run(tmp_path, [], alone_limit_s=None)
    run.asked.device = device
    limit = Lane(run)._limit_alone({"effort": effort})
    assert limit == (float("inf") if limit_s is None else limit_s)
