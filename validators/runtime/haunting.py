"""Ghost replay, the judge's side: leave out one kernel at a time and see whether the values still come right."""

from typing import Any

from kb.validators.operators.spec import Operator
from kb.validators.runtime.arena import Arena
from kb.validators.runtime.conversation import Conversation
from kb.validators.runtime.expectation import Expectation
from kb.validators.runtime.plan import FRESH, Case, Plan
from kb.validators.runtime.sandbox import Limits
from kb.validators.runtime.worker import Worker, WorkerEndedError

_LIMIT = 24
"""Most ghosts of one replay."""


def replay(
    source: bytes,
    operator: Operator,
    plan: Plan,
    expectation: Expectation,
    *,
    limits: Limits,
    triton: bool,
    limit_s: float,
) -> dict[str, Any]:
    """Replay a candidate that passed, with each of its kernels and functions a ghost in turn.

    Returns:
        ``reached``: name to calls; ``idle_kernels``: kernels whose absence changed nothing; ``hiding``: functions and
        kernels that fail while the result comes out right; ``tested``: names that were ghosts.
    """
    arena = Arena(512 << 20)
    worker = Worker(source, arena=arena, limits=limits, triton=triton)
    try:
        worker.wait_ready(limit_s=90)
        return _Replay(worker, arena, operator, plan, expectation, limit_s).run()
    except WorkerEndedError as error:
        return {"stopped": error.reason}
    finally:
        worker.end()
        arena.close()


class _Replay:
    def __init__(
        self, worker: Worker, arena: Arena, operator: Operator, plan: Plan, expectation: Expectation, limit_s: float
    ) -> None:
        self.worker, self.plan, self.expectation, self.limit_s = worker, plan, expectation, limit_s
        self.talk = Conversation(worker, arena, operator, plan, expectation, limit_s=limit_s)
        self.used: set[int] = set()

    def ask(self, **message: Any) -> dict[str, Any]:  # noqa: ANN401 - plain JSON values
        return self.worker.ask(message, limit_s=self.limit_s)

    def run(self) -> dict[str, Any]:
        """Trace one call of each workload, then make ghosts."""
        self.ask(op="load")
        self.ask(op="trace")
        self.ask(op="haunt", name=None)
        where: dict[str, set[int]] = {}
        seen: dict[str, int] = {}
        for case in [one for one in self.plan.cases if one.turn == 0 and self._telling(one)]:
            self._right(case)
            calls: dict[str, int] = self.ask(op="reached").get("calls", {})
            for name, count in calls.items():
                if count > seen.get(name, 0):
                    where.setdefault(name, set()).add(case.workload)
            seen = calls
        facts = self.ask(op="reached")
        hiding = [n for n, count in facts.get("raised", {}).items() if count and count == seen.get(n)]
        idle: list[str] = []
        tested: list[str] = []
        names = sorted(
            (one for one in seen if one != "function:run"), key=lambda one: (one.startswith("function"), one)
        )
        for name in names[:_LIMIT]:
            launches = bool(facts.get("below", {}).get(name))
            if name in hiding or not (name.startswith("kernel:") or launches):
                continue
            right = self._with_ghost(name, where[name])
            if right is None:
                continue
            tested.append(name)
            if right:
                (idle if name.startswith("kernel:") else hiding).append(name)
        return {"reached": seen, "tested": tested, "idle_kernels": idle, "hiding": hiding}

    def _with_ghost(self, name: str, workloads: set[int]) -> bool | None:
        """Tell whether the result is right without ``name``; None if no unused case is left to see it with."""
        # Each ghost meets contents that this worker never computed: freed memory cannot hold the answer.
        fresh = [
            case
            for case in self.plan.cases
            if case.workload in workloads and case.turn > 0 and case.contents == FRESH and case.index not in self.used
        ]
        case = next((one for one in fresh if self._telling(one)), None)
        if case is None:
            return None
        self.used.add(case.index)
        self.ask(op="haunt", name=name)
        try:
            return self._right(case)
        finally:
            self.ask(op="haunt", name=None)

    def _telling(self, case: Case) -> bool:
        """Tell whether a case has enough non-zero results for luck to be ruled out."""
        return sum(int((one != 0).sum()) for one in self.expectation.case(case.index).outputs) >= 4

    def _right(self, case: Case) -> bool:
        return self.talk.call(case, lambda _reason, _detail: None)
