"""Ghost replay, the judge's side: leave out one kernel at a time and see whether the values still come right."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from kb.validators.operators.spec import Operator
from kb.validators.runtime import replies, tracing
from kb.validators.runtime.arena import Arena
from kb.validators.runtime.conversation import Conversation
from kb.validators.runtime.errors import WorkerEndedError
from kb.validators.runtime.expectation import Expectation
from kb.validators.runtime.plan import FRESH, Case, Plan
from kb.validators.runtime.sandbox import Limits
from kb.validators.runtime.worker import Worker
from kb.validators.runtime.workplace import Workplace

_LIMIT = 24
"""Most ghosts of one replay."""

_MOST_LAUNCHES = 64
"""Most kernels and workloads whose launch parameters are kept."""

_TRIALS = 3
"""Most workloads in which a ghost must change nothing to count as idle: a carry has nothing to do in one block."""

_WORKERS = 3
"""Most workers of one replay: a ghost may hang or crash the one it lives in, which shows that it was needed."""


def replay(
    source: bytes,
    operator: Operator,
    plan: Plan,
    expectation: Expectation,
    *,
    place: Workplace,
    limits: Limits,
    triton: bool,
    limit_s: float,
    device: str = "cpu",
) -> dict[str, Any]:
    """Replay a candidate that passed, with each of its kernels and functions a ghost in turn.

    On a GPU the same worker says before that which kernels ran there, and whether equal inputs give equal results;
    compilers may be started in it all the time, since nothing that it does is judged.

    Returns:
        ``reached``: name to calls; ``idle_kernels``: kernels whose absence changed nothing; ``hiding``: functions and
        kernels that fail while the result comes out right; ``tested``: names that were ghosts; ``stopped``: why the
        replay came to no end, if it did not; ``launched``: parameters with which each kernel was launched for each
        workload, by the candidate's own account; on a GPU also ``kernels`` and ``determinism``, of ``tracing``.
    """
    found = _Found()
    arena = Arena(512 << 20)
    try:
        for _ in range(_WORKERS):
            worker = Worker(source, place=place, arena=arena, limits=limits, triton=triton, device=device)
            try:
                worker.wait_ready(limit_s=90)
                if device != "cpu":
                    worker.open_build()
                talk = Conversation(worker, arena, operator, plan, expectation, limit_s=limit_s)
                _Replay(worker, talk, plan, expectation, limit_s, found).run()
                return found.to_json()
            except WorkerEndedError as error:
                if found.ghost is None:
                    return found.to_json() | {"stopped": error.reason}
                found.tested.append(found.ghost)
                found.ghost = None
            except replies.ForgedReplyError:
                return found.to_json() | {"stopped": "forged_protocol"}
            finally:
                worker.end()
        return found.to_json()
    finally:
        arena.close()


@dataclass
class _Found:
    """What is known so far, over all workers."""

    reached: dict[str, int] = field(default_factory=dict)
    tested: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    hiding: list[str] = field(default_factory=list)
    launched: list[dict[str, Any]] = field(default_factory=list)
    used: set[int] = field(default_factory=set)
    ghost: str | None = None
    observed: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return self.observed | {
            "reached": self.reached,
            "tested": sorted(set(self.tested)),
            "idle_kernels": sorted(set(self.idle)),
            "hiding": sorted(set(self.hiding)),
            "launched": self.launched,
        }


class _Replay:
    """One worker's part of a replay."""

    def __init__(
        self, worker: Worker, talk: Conversation, plan: Plan, expectation: Expectation, limit_s: float, found: _Found
    ) -> None:
        self.worker, self.talk, self.plan, self.expectation = worker, talk, plan, expectation
        self.limit_s, self.found = limit_s, found
        self.used: set[int] = set()

    def ask(self, **message: Any) -> dict[str, Any]:  # noqa: ANN401 - plain JSON values
        return self.worker.ask(message, limit_s=self.limit_s)

    def run(self) -> None:
        """Trace one call of each workload, then make ghosts."""
        self.ask(op="load")
        if self.worker.device != "cpu" and not self.found.observed:
            firsts = [one for one in self.plan.cases if one.turn == 0]
            self.found.observed = tracing.observe(self.worker, self.talk, self.expectation, firsts, self.limit_s)
        self.ask(op="trace")
        self.ask(op="haunt", name=None)
        where: dict[str, set[int]] = {}
        seen: dict[str, int] = {}
        for case in [one for one in self.plan.cases if one.turn == 0 and self._telling(one)]:
            self._right(case)
            reached = self.ask(op="reached")
            calls = replies.counts(reached, "calls")
            for name, count in calls.items():
                if count > seen.get(name, 0):
                    where.setdefault(name, set()).add(case.workload)
            self._note_launches(case, replies.parameters(reached, "launched"), calls, seen)
            seen = calls
        facts = self.ask(op="reached")
        raised, below = replies.counts(facts, "raised"), replies.groups(facts, "below")
        self.found.reached = seen
        self.found.hiding += [name for name, count in raised.items() if count and count == seen.get(name)]
        # Kernels first: what they do is what a function below which they are launched does.
        names = sorted((n for n in seen if n != "function:run"), key=lambda n: (n.startswith("function"), n))
        for name in names[:_LIMIT]:
            if name in self.found.tested or name in self.found.hiding:
                continue
            if name in where and (name.startswith("kernel:") or below.get(name)):
                self._test(name, where[name])

    def _note_launches(
        self, case: Case, launched: dict[str, dict[str, Any]], calls: dict[str, int], seen: dict[str, int]
    ) -> None:
        """Write down with which parameters kernels were launched for a workload; a second worker has nothing to add."""
        workload = self.plan.workloads[case.workload]
        for name, given in launched.items():
            row = {"kernel": name.removeprefix("kernel:"), "axes": dict(workload.axes), "dtype": workload.dtype}
            known = [{key: one[key] for key in row} for one in self.found.launched]
            if calls.get(name, 0) > seen.get(name, 0) and row not in known and len(known) < _MOST_LAUNCHES:
                self.found.launched.append({**row, "parameters": given})

    def _test(self, name: str, workloads: set[int]) -> None:
        """Make one name a ghost, and write down whether the results of several workloads are right without it."""
        cases = self._trials(workloads)
        if not cases:
            return
        self.ask(op="haunt", name=name)
        self.found.ghost = name
        right = True
        for case in cases:
            self.used.add(case.index)
            right = self._right(case)
            if not right:
                break
        self.found.ghost = None
        self.ask(op="haunt", name=None)
        self.found.tested.append(name)
        if right:
            (self.found.idle if name.startswith("kernel:") else self.found.hiding).append(name)

    def _trials(self, workloads: set[int]) -> list[Case]:
        """Choose a case of each of a few workloads, the largest first: where one block covers all, none is missed."""
        # Each ghost meets contents that this worker never computed: freed memory cannot hold the answer.
        fresh = [
            case
            for case in self.plan.cases
            if case.workload in workloads and case.turn > 0 and case.contents == FRESH and case.index not in self.used
        ]
        size = {one: math.prod(self.plan.workloads[one].axes.values()) for one in workloads}
        firsts: dict[int, Case] = {}
        for case in sorted(fresh, key=lambda one: -size[one.workload]):
            if case.workload not in firsts and self._telling(case):
                firsts[case.workload] = case
            if len(firsts) == _TRIALS:
                break
        return list(firsts.values())

    def _telling(self, case: Case) -> bool:
        """Tell whether a case has enough results for luck to be ruled out: neither zero nor what fills fresh memory."""
        return sum(told_apart(one) for one in self.expectation.case(case.index).outputs) >= 4

    def _right(self, case: Case) -> bool:
        return self.talk.call(case, lambda _reason, _detail: None)


def told_apart(expected: torch.Tensor) -> int:
    """Return how many results memory that nobody wrote cannot hold: a mask is filled with ones, or left at zeros."""
    ones = int((expected != 0).sum())
    return min(ones, expected.numel() - ones) if expected.dtype is torch.bool else ones
