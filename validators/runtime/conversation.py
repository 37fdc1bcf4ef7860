"""The conversation with a candidate: every call is a check, and every output of every call is compared here."""

import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from kb.validators.operators.spec import DTYPES, Operator
from kb.validators.runtime import processes, replies, report
from kb.validators.runtime.arena import Arena, Placed, aligned
from kb.validators.runtime.errors import JudgeError, WorkerEndedError
from kb.validators.runtime.expectation import Expectation, Expected
from kb.validators.runtime.plan import Case, Plan
from kb.validators.runtime.report import CaseResult
from kb.validators.runtime.worker import Worker

_FAILURES = 3
"""After so many failed calls the rest is not asked any more."""

_HELD, _HELD_BYTES = 24, 64 << 20
"""How many earlier results are looked at again, and how many bytes of them; one of them whatever its size."""

_SHOWN = {"wrong_shape": "wrong_shape", "wrong_dtype": "wrong_dtype"}
"""Reasons that a case has as its verdict; any other one is ``cheated``."""

Reject = Callable[[str, str], None]


@dataclass(frozen=True)
class Asked:
    """One call that is about to be made."""

    case: Case
    expected: Expected
    message: dict[str, Any]
    """What the worker is told, but for the operation."""
    spans: list[tuple[int, bytes]]
    """Where each input lies in the arena, and its bytes."""


@dataclass(frozen=True)
class _Result:
    """What a call returned."""

    case: Case
    expected: Expected
    """Without values: what its results have to look like."""
    found: list[bytes]

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.found))


class Conversation:
    """Runs a plan against one worker."""

    def __init__(
        self, worker: Worker, arena: Arena, operator: Operator, plan: Plan, expectation: Expectation, *, limit_s: float
    ) -> None:
        self.worker, self.arena, self.operator, self.plan, self.expectation = worker, arena, operator, plan, expectation
        self.limit_s = limit_s
        self.kind = worker.device.partition(":")[0]
        self.results: list[CaseResult] = []
        self.changed: list[str] = []
        self.threads: list[int] = []
        """Threads of the worker after each call of ``run``."""
        self._dice = random.Random(os.urandom(16))  # noqa: S311 - chooses when to look, and nobody sees it
        self._bases, self._output_offset = self._places()
        self._earlier: _Result | None = None
        self._held: deque[_Result | None] = deque()
        """Results of earlier calls, the latest last, None where a call failed; in step with what the worker holds."""

    def _places(self) -> tuple[dict[tuple[int, int], int], int]:
        """Give each workload two places in the arena, and the results the rest of it.

        Where arguments have homes of their own on a device, the arena is only passed through, and all share its half.
        """
        if self.kind != "cpu":
            return {}, self.arena.size_bytes // 2
        needed: dict[int, int] = {}
        for case in self.plan.cases:
            arguments = self.expectation.argument_bytes(case.index) + 64 * 256
            needed[case.workload] = max(needed.get(case.workload, 0), arguments)
        bases, offset = {}, 0
        for which in sorted(needed):
            for slot in (0, 1):
                bases[which, slot] = offset
                offset = aligned(offset + needed[which])
        if offset > self.arena.size_bytes // 2:
            raise JudgeError(
                f"the inputs need {2 * offset >> 20} MiB of shared memory", "judge fewer or smaller workloads"
            )
        return bases, offset

    def run(self, reject: Reject) -> None:
        """Make all calls; every failure is a reason."""
        watched = set(self._dice.sample(range(len(self.plan.cases)), min(5, len(self.plan.cases))))
        failures = 0
        for case in self.plan.cases:
            try:
                passed = self.call(case, reject)
                self.threads.append(self.worker.threads())
                if passed and case.index in watched:
                    self._idle(reject)
            except WorkerEndedError as error:
                reject(error.reason, error.detail or f"in call {case.index}")
                self.results.append(self._result(case, "timed_out" if error.reason == "timed_out" else "crashed", None))
                return
            failures += not passed
            if failures >= _FAILURES:
                return
        try:
            if self.results and self.results[-1].verdict == "passed":
                self._look_back(range(1, len(self._held) + 1), self.plan.cases[-1], reject)
            self.changed = replies.names(self.worker.ask({"op": "state"}, limit_s=self.limit_s), "changed")
        except WorkerEndedError as error:
            reject(error.reason, error.detail)
        except replies.ForgedReplyError as error:
            reject("forged_protocol", str(error))

    def call(self, case: Case, reject: Reject) -> bool:
        """Make one call and compare everything that can be seen of it.

        Raises:
            WorkerEndedError: The worker is gone or too slow.
        """
        asked = self.prepare(case)
        return self.conclude(asked, self.worker.ask({**asked.message, "op": "call"}, limit_s=self.limit_s), reject)

    def prepare(self, case: Case) -> Asked:
        """Put the inputs of a case where they belong, and noise where its results will be."""
        self._held.append(self._earlier)
        self._earlier = None
        while len(self._held) > 1 and (
            len(self._held) > _HELD or sum(one.size_bytes for one in self._held if one is not None) > _HELD_BYTES
        ):
            self._held.popleft()
        expected = self.expectation.case(case.index)
        message, spans = self.message(case, expected)
        self.arena.write(self._output_offset, os.urandom(min(message["room"], 1 << 16)))
        return Asked(case, expected, message, spans)

    def conclude(self, asked: Asked, reply: dict[str, Any], reject: Reject) -> bool:
        """Compare what came of a call, and everything that can be seen of it afterwards.

        Args:
            asked: What ``prepare`` returned.
            reply: The worker's reply to ``call``.
            reject: Takes reason and detail of a failure.

        Returns:
            Whether all of it was right; a result is added to ``results`` either way.

        Raises:
            WorkerEndedError: The worker is gone or too slow.
        """
        case, expected = asked.case, asked.expected
        detail = replies.failure(reply)
        if detail is not None:
            reject("crashed", detail)
            self.results.append(self._result(case, "crashed", None, detail))
            return False
        first, problem = self.collect(reply, case, expected)
        if problem is None:
            problem = self._compare(case, first, expected)
        else:
            self.results.append(self._result(case, _SHOWN.get(problem[0], "cheated"), None, problem[1]))
        if problem is not None:
            reject(problem[0], f"{problem[1]} (call {case.index}, {case.contents})")
            return False
        return self._afterwards(asked, first, reject)

    def message(self, case: Case, expected: Expected) -> tuple[dict[str, Any], list[tuple[int, bytes]]]:
        """Write the inputs of a case where they belong; returns what to tell the worker, and what was written."""
        offset = self._bases.get((case.workload, case.slot), 0)
        arguments: list[dict[str, Any]] = []
        spans: list[tuple[int, bytes]] = []
        for one in expected.arguments:
            if "value" in one:
                arguments.append({"value": one["value"]})
                continue
            raw = one["tensor"]
            placed = Placed(raw["dtype"], tuple(raw["shape"]), tuple(raw["strides"]), offset, raw["size_bytes"])
            self.arena.write(offset, one["data"])
            spans.append((offset, one["data"]))
            home = f"{case.workload}.{case.slot}.{len(arguments)}"
            arguments.append({"tensor": placed.to_json(), "home": home})
            offset = aligned(offset + raw["size_bytes"])
        if offset > self.arena.size_bytes // 2:
            raise JudgeError(f"the inputs need {offset >> 19} MiB of shared memory", "judge smaller workloads")
        room = sum(
            aligned(one.numel() * DTYPES[self.wanted(case, which)].itemsize)
            for which, one in enumerate(expected.outputs)
        )
        return {
            "arguments": arguments, "offset": self._output_offset, "room": room + 4096, "keep": len(self._held)
        }, spans  # fmt: skip

    def collect(
        self, reply: dict[str, Any], case: Case, expected: Expected
    ) -> tuple[list[bytes], tuple[str, str] | None]:
        """Read the bytes that a reply points at; what the reply claims of them must be what was asked for."""
        found: list[bytes] = []
        try:
            claims = replies.claims(reply)
            if len(claims) != len(expected.outputs):
                return [], ("wrong_shape", f"{len(expected.outputs)} results were expected, got {len(claims)}")
            for which, (claim, want) in enumerate(zip(claims, expected.outputs, strict=True)):
                problem = self._claim_problem(claim, want, self.operator.outputs[which].name, self.wanted(case, which))
                if problem is not None:
                    return [], problem
                found.append(self.arena.read(claim.offset, claim.size_bytes))
        except (replies.ForgedReplyError, ValueError) as error:
            return [], ("forged_protocol", str(error))
        return found, None

    def _claim_problem(
        self, claim: replies.Claim, want: torch.Tensor, name: str, wanted: str
    ) -> tuple[str, str] | None:
        if not claim.plain or not claim.is_tensor:
            code = "lazy_result" if claim.is_tensor else "wrong_dtype"
            return code, f"{name}: a plain tensor was expected, got {report.escaped(claim.kind, 60)}"
        if claim.shape != tuple(want.shape):
            shown = report.escaped(str(list(claim.shape)), 80)
            return "wrong_shape", f"{name}: expected {list(want.shape)}, got {shown}"
        if claim.device != self.kind or claim.dtype != wanted:
            shown = report.escaped(f"{claim.dtype} on {claim.device}", 60)
            return "wrong_dtype", f"{name}: expected {wanted}, got {shown}"
        if claim.size_bytes != want.numel() * DTYPES[wanted].itemsize:
            return "forged_protocol", f"{name}: a result of the wrong size"
        return None

    def wanted(self, case: Case, which: int) -> str:
        """Return the dtype that an output of a case must have."""
        declared = self.operator.outputs[which].dtype
        return self.plan.workloads[case.workload].dtype if declared == "data" else declared

    def _compare(self, case: Case, found: list[bytes], expected: Expected) -> tuple[str, str] | None:
        comparisons = self.expectation.compare(self.operator, self.plan.workloads[case.workload], expected, found)
        worst = max((c.max_normalised for c in comparisons if c.max_normalised is not None), default=None)
        bad = next((c for c in comparisons if c.verdict != "passed"), None)
        self.results.append(self._result(case, bad.verdict if bad else "passed", worst, bad.detail if bad else ""))
        return None if bad is None else (bad.verdict, bad.detail)

    def _afterwards(self, asked: Asked, first: list[bytes], reject: Reject) -> bool:
        """Look again after ``run`` has returned: inputs untouched, results final, results of their own memory."""
        case, expected, message, spans = asked.case, asked.expected, asked.message, asked.spans
        if self.kind != "cpu":
            if self._again("ordered", case, expected) != first:
                return self._cheated(case, reject, "side_stream", "a result was not ready in the order of the stream")
            self._scramble(spans)
            self.worker.ask({**message, "op": "inputs"}, limit_s=self.limit_s)
        for offset, data in spans:
            if self.arena.read(offset, len(data)) != data:
                return self._cheated(case, reject, "input_changed", "an input was written to")
        time.sleep(self._dice.random() * 0.01)
        if self._again("again", case, expected) != first:
            return self._cheated(case, reject, "late_write", "a result changed after run had returned")
        self._scramble(spans)
        if self.kind != "cpu":
            self.worker.ask({**message, "op": "reload"}, limit_s=self.limit_s)
        if self._again("again", case, expected, synchronize=True) != first:
            return self._cheated(case, reject, "aliases_input", "a result changed when an input did")
        # The call before, and one of those before it: buffers may be handed out in turn.
        farther = [self._dice.randint(2, len(self._held))] if len(self._held) > 1 else []
        if not self._look_back([1, *farther], case, reject):
            return False
        like = tuple(one.to("meta") for one in expected.outputs)
        self._earlier = _Result(case, Expected((), like, ()), first)
        return True

    def _look_back(self, back: Iterable[int], last: Case, reject: Reject) -> bool:
        """See that earlier results are what they were.

        Args:
            back: Which: 1 is what the call before the last one returned.
            last: The case of the last call.
            reject: Takes reason and detail.
        """
        for distance in back:
            held = self._held[-distance]
            if held is not None and self._again("before", held.case, held.expected, back=distance) != held.found:
                detail = f"the result of call {held.case.index} is not what it was"
                return self._cheated(last, reject, "reused_result", detail)
        return True

    def _scramble(self, spans: list[tuple[int, bytes]]) -> None:
        """Write something else where the inputs lie in the arena."""
        for offset, data in spans:
            noise = os.urandom(min(len(data), 1 << 20))
            self.arena.write(offset, (noise * (len(data) // max(len(noise), 1) + 1))[: len(data)])

    def _again(
        self, what: str, case: Case, expected: Expected, *, synchronize: bool = False, back: int = 0
    ) -> list[bytes]:
        asked = {"op": what, "synchronize": synchronize, "back": back}
        return self.collect(self.worker.ask(asked, limit_s=self.limit_s), case, expected)[0]

    def _cheated(self, case: Case, reject: Reject, reason: str, detail: str) -> bool:
        reject(reason, f"{detail} (call {case.index})")
        last = self.results.pop()
        self.results.append(self._result(case, "cheated", last.max_normalised, detail))
        return False

    def _idle(self, reject: Reject) -> None:
        """See that a worker that should have nothing to do has nothing to do."""
        found = processes.work_left(self.worker.pids)
        if found is not None:
            reject("busy_after_return", f"{found:.2f} s of work in {processes.WINDOW_S} s after run had returned")

    def _result(self, case: Case, verdict: str, worst: float | None, detail: str = "") -> CaseResult:
        workload = self.plan.workloads[case.workload]
        return CaseResult(dict(workload.axes), workload.dtype, workload.law, case.contents, verdict, worst, detail)
