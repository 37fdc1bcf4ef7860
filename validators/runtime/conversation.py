"""The conversation with a candidate: every call is a check, and every output of every call is compared here."""

import os
import random
import time
from collections.abc import Callable
from typing import Any

import torch

from kb.validators.operators.spec import DTYPES, Operator
from kb.validators.runtime import report
from kb.validators.runtime.arena import Arena, Placed, aligned
from kb.validators.runtime.compare import Comparison, compare_output
from kb.validators.runtime.expectation import Expectation, Expected
from kb.validators.runtime.plan import Case, Plan
from kb.validators.runtime.report import CaseResult
from kb.validators.runtime.worker import JudgeError, Worker, WorkerEndedError

_FAILURES = 3
"""After so many failed calls the rest is not asked any more."""

_SETTLE_S, _WINDOW_S, _BUSY = 0.05, 0.15, 0.6
"""Grace after a call, the window in which CPU time is counted, and the share of one core that counts as busy."""

Reject = Callable[[str, str], None]


class Conversation:
    """Runs a plan against one worker."""

    def __init__(
        self, worker: Worker, arena: Arena, operator: Operator, plan: Plan, expectation: Expectation, *, limit_s: float
    ) -> None:
        self.worker, self.arena, self.operator, self.plan, self.expectation = worker, arena, operator, plan, expectation
        self.limit_s = limit_s
        self.results: list[CaseResult] = []
        self.changed: list[str] = []
        self._dice = random.Random(os.urandom(16))  # noqa: S311 - chooses when to look, and nobody sees it
        self._bases, self._output_offset = self._places()

    def _places(self) -> tuple[dict[tuple[int, int], int], int]:
        """Give each workload two places in the arena, and the results the rest of it."""
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
            self.changed = [
                str(name) for name in self.worker.ask({"op": "state"}, limit_s=self.limit_s).get("changed", [])
            ]
        except WorkerEndedError as error:
            reject(error.reason, error.detail)

    def call(self, case: Case, reject: Reject) -> bool:
        """Make one call and compare everything that can be seen of it.

        Raises:
            WorkerEndedError: The worker is gone or too slow.
        """
        expected = self.expectation.case(case.index)
        arguments, spans = self._place(case, expected)
        size = sum(aligned(one.numel() * 8) for one in expected.outputs) + 4096
        self.arena.write(self._output_offset, os.urandom(min(size, 1 << 16)))
        reply = self.worker.ask(
            {"op": "call", "arguments": arguments, "offset": self._output_offset}, limit_s=self.limit_s
        )
        if "error" in reply:
            detail = report.escaped(f"{reply['error'].get('type')}: {reply['error'].get('message')}", 500)
            reject("crashed", detail)
            self.results.append(self._result(case, "crashed", None, detail))
            return False
        first, problem = self._collect(reply, expected)
        if problem is None:
            problem = self._compare(case, first, expected)
        if problem is not None:
            reject(problem[0], f"{problem[1]} (call {case.index}, {case.contents})")
            return False
        return self._afterwards(case, expected, spans, first, reject)

    def _place(self, case: Case, expected: Expected) -> tuple[list[dict[str, Any]], list[tuple[int, bytes]]]:
        """Write the inputs of a case where they belong; returns the message's arguments, and what was written."""
        offset = self._bases[case.workload, case.slot]
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
            arguments.append({"tensor": placed.to_json()})
            offset = aligned(offset + raw["size_bytes"])
        return arguments, spans

    def _collect(self, reply: dict[str, Any], expected: Expected) -> tuple[list[bytes], tuple[str, str] | None]:
        """Read the bytes that a reply points at; what the reply claims of them must be what was asked for."""
        claims = reply.get("outputs")
        if not isinstance(claims, list) or not all(isinstance(one, dict) for one in claims):
            return [], ("forged_protocol", "a reply without outputs")
        if len(claims) != len(expected.outputs):
            return [], ("wrong_shape", f"{len(expected.outputs)} results were expected, got {len(claims)}")
        found: list[bytes] = []
        for claim, want, buffer in zip(claims, expected.outputs, self.operator.outputs, strict=True):
            problem = self._claim_problem(claim, want, buffer.name)
            if problem is not None:
                return [], problem
            try:
                found.append(self.arena.read(claim["offset"], claim["size_bytes"]))
            except (ValueError, TypeError):
                return [], ("forged_protocol", "a result outside the arena")
        return found, None

    def _claim_problem(self, claim: dict[str, Any], want: torch.Tensor, name: str) -> tuple[str, str] | None:
        if not claim.get("plain"):
            kind = report.escaped(str(claim.get("type")), 60)
            code = "lazy_result" if "dtype" in claim else "wrong_dtype"
            return code, f"{name}: a plain tensor was expected, got {kind}"
        if claim.get("shape") != list(want.shape):
            return (
                "wrong_shape",
                f"{name}: expected {list(want.shape)}, got {report.escaped(str(claim.get('shape')), 80)}",
            )
        if claim.get("device") != "cpu" or claim.get("dtype") not in DTYPES:
            return (
                "wrong_dtype",
                f"{name}: {report.escaped(str(claim.get('dtype')), 40)} on {claim.get('device')!r:.20}",
            )
        if claim.get("size_bytes") != want.numel() * DTYPES[claim["dtype"]].itemsize:
            return "forged_protocol", f"{name}: a result of the wrong size"
        return None

    def _wanted(self, case: Case, which: int) -> str:
        declared = self.operator.outputs[which].dtype
        return self.plan.workloads[case.workload].dtype if declared == "data" else declared

    def _compare(self, case: Case, found: list[bytes], expected: Expected) -> tuple[str, str] | None:
        dtype = self.plan.workloads[case.workload].dtype
        comparisons: list[Comparison] = []
        for which, (data, want, scale) in enumerate(zip(found, expected.outputs, expected.scales, strict=True)):
            wanted = self._wanted(case, which)
            buffer = self.operator.outputs[which]
            if len(data) != want.numel() * DTYPES[wanted].itemsize:
                comparisons.append(Comparison("wrong_dtype", None, f"{buffer.name}: expected {wanted}"))
                continue
            flat = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
            got = flat.view(DTYPES[wanted]).reshape(want.shape)
            error = self.operator.error
            comparisons.append(compare_output(got, want, buffer=buffer, dtype=dtype, error=error, scale=scale))
        worst = max((c.max_normalised for c in comparisons if c.max_normalised is not None), default=None)
        bad = next((c for c in comparisons if c.verdict != "passed"), None)
        self.results.append(self._result(case, bad.verdict if bad else "passed", worst, bad.detail if bad else ""))
        return None if bad is None else (bad.verdict, bad.detail)

    def _afterwards(
        self, case: Case, expected: Expected, spans: list[tuple[int, bytes]], first: list[bytes], reject: Reject
    ) -> bool:
        """Look again after ``run`` has returned: inputs untouched, results final, results of their own memory."""
        for offset, data in spans:
            if self.arena.read(offset, len(data)) != data:
                return self._cheated(case, reject, "input_changed", "an input was written to")
        time.sleep(self._dice.random() * 0.01)
        if self._again(expected) != first:
            return self._cheated(case, reject, "late_write", "a result changed after run had returned")
        for offset, data in spans:
            self.arena.write(offset, os.urandom(len(data)))
        if self._again(expected) != first:
            return self._cheated(case, reject, "aliases_input", "a result changed when an input did")
        return True

    def _again(self, expected: Expected) -> list[bytes]:
        return self._collect(self.worker.ask({"op": "again"}, limit_s=self.limit_s), expected)[0]

    def _cheated(self, case: Case, reject: Reject, reason: str, detail: str) -> bool:
        reject(reason, f"{detail} (call {case.index})")
        last = self.results.pop()
        self.results.append(self._result(case, "cheated", last.max_normalised, detail))
        return False

    def _idle(self, reject: Reject) -> None:
        """Count the CPU time of a worker that should have nothing to do."""
        used = 0.0
        for _ in range(3):
            time.sleep(_SETTLE_S)
            before = self.worker.cpu_seconds()
            time.sleep(_WINDOW_S)
            used = self.worker.cpu_seconds() - before
            if used < _BUSY * _WINDOW_S:
                return
        reject("busy_after_return", f"{used:.2f} s of CPU time in {_WINDOW_S} s after run had returned")

    def _result(self, case: Case, verdict: str, worst: float | None, detail: str = "") -> CaseResult:
        workload = self.plan.workloads[case.workload]
        return CaseResult(dict(workload.axes), workload.dtype, workload.law, case.contents, verdict, worst, detail)
