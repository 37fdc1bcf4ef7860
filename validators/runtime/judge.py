"""The judge: says ``accepted``, ``rejected`` or ``needs_review`` of a candidate, from bytes alone.

Order: freeze and hash the source; start the reference worker and the sandboxed candidate worker; load the candidate;
only then draw the seed and the plan; compute what is expected while the candidate is stopped; then the conversation,
in which every output of every call is compared here; then the ghost replay in another worker.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from subprocess import SubprocessError
from typing import Any

from kb.validators import operators
from kb.validators.operators.spec import Operator, Workload
from kb.validators.runtime import findings, plan, replies, report
from kb.validators.runtime.arena import Arena
from kb.validators.runtime.conversation import Conversation
from kb.validators.runtime.expectation import Expectation, ReferenceWorker
from kb.validators.runtime.haunting import replay
from kb.validators.runtime.report import CaseResult, Report
from kb.validators.runtime.sandbox import Limits
from kb.validators.runtime.worker import JudgeError, Worker, WorkerEndedError
from kb.validators.runtime.workplace import Workplace

ARENA_BYTES = 512 << 20
"""Shared memory of one judgement; only touched pages cost anything."""

SOURCE_BYTES = 1 << 20
"""Longest source that is looked at."""

REQUIRED = ("file_read", "file_write", "home_write", "network", "process", "signal")
"""Layers that must hold, or nothing is judged."""

_MILD = frozenset(
    {
        "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "syslog", "memfd_create",
        "prlimit64", "setpriority", "sched_setscheduler", "sched_setparam", "sched_setattr", "ioprio_set", "utime",
        "utimes", "utimensat",
    }
)  # fmt: skip
"""Refused calls that a library may try without harm: they ask for a look instead of a rejection."""

_SOFT_CHANGES = frozenset({"num_threads", "cpu_rng", "environ", "grad_mode"})
"""Changes of process-wide state that break the contract but forge nothing."""


@dataclass(frozen=True)
class Options:
    """How a candidate is judged."""

    load_limit_s: float = 120.0
    call_limit_s: float = 30.0
    memory_bytes: int = 4 << 30
    ghosts: bool = True
    calls: tuple[int, int] = (3, 6)
    workloads: Sequence[Workload] | None = None
    """None: the operator's awkward workloads."""
    dtypes: Sequence[str] | None = None
    """None: all that the operator has; else only workloads of these."""


@dataclass
class _Verdict:
    """Reasons as they come in."""

    reasons: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    review: list[str] = field(default_factory=list)

    def reject(self, reason: str, detail: str) -> None:
        self.reasons.append(reason)
        self.details.append(f"{reason}: {detail}")

    def doubt(self, reason: str, detail: str) -> None:
        self.review.append(reason)
        self.details.append(f"{reason}: {detail}")

    def word(self) -> str:
        if self.reasons:
            return report.REJECTED
        return report.NEEDS_REVIEW if self.review else report.ACCEPTED


def judge(
    operator_name: str,
    source: bytes,
    *,
    options: Options | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Judge one candidate for values, on the CPU.

    Args:
        operator_name: One of ``operators.NAMES``.
        source: The candidate's file, UTF-8 Python with a function ``run`` of the operator's signature.
        options: Limits and scope.
        progress: Called with a phrase at each step.

    Returns:
        The report. Whatever a candidate does is a verdict with reason codes.

    Raises:
        KeyError: No operator has this name.
        JudgeError: The judge itself cannot work here; never an acceptance.
    """
    chosen = options or Options()
    say = progress or (lambda _: None)
    operator = operators.load(operator_name)
    workloads = _workloads(operator, chosen)
    try:
        state = _Judgement(operator, source, chosen, workloads, say)
        try:
            return state.run()
        finally:
            state.close()
    except (OSError, MemoryError, SubprocessError) as error:
        # A full disk, no memory, no processes left: whatever is missing here says nothing of a candidate.
        raise JudgeError(
            f"the judge ran out of something: {error!r}", "free some memory and disk: kb doctor"
        ) from error


def _workloads(operator: Operator, options: Options) -> tuple[Workload, ...]:
    asked = (
        options.workloads if options.workloads is not None else [w for w in operator.workloads if w.use == "awkward"]
    )
    kept = tuple(w for w in asked if options.dtypes is None or w.dtype in options.dtypes)
    if not kept:
        raise JudgeError(
            f"no workload of {operator.name} has a dtype of {', '.join(options.dtypes or ())}",
            f"kb operators {operator.name} shows its dtypes",
        )
    return kept


class _Judgement:
    """One run of the judge; holds what has to be ended whatever happens."""

    def __init__(
        self,
        operator: Operator,
        source: bytes,
        options: Options,
        workloads: tuple[Workload, ...],
        say: Callable[[str], None],
    ) -> None:
        self.operator, self.source, self.options, self.workloads, self.say = operator, source, options, workloads, say
        self.verdict = _Verdict()
        self.cases: list[CaseResult] = []
        self.seconds: dict[str, float] = {}
        self.plan: plan.Plan | None = None
        self.seed: int | None = None
        self.ghosts: dict[str, Any] = {}
        self.triton = b"triton" in source
        self.limits = Limits(memory_bytes=options.memory_bytes)
        self.place = Workplace()
        self.arena = Arena(ARENA_BYTES)
        self.reference: ReferenceWorker | None = None
        self.worker: Worker | None = None

    def close(self) -> None:
        """End what still runs and give memory back."""
        if self.worker is not None:
            self.worker.end()
        if self.reference is not None:
            self.reference.end()
        self.arena.close()
        self.place.close()

    def run(self) -> Report:
        """Do all steps and decide."""
        self.say("starting the workers")
        began = time.monotonic()
        self.reference = ReferenceWorker(self.operator.name, self.place.folder("reference"))
        self.worker = Worker(self.source, place=self.place, arena=self.arena, limits=self.limits, triton=self.triton)
        layers = self.worker.wait_ready(limit_s=90)
        _require(layers)
        self.seconds["start"] = time.monotonic() - began
        loaded = self._load()
        expectation = self._expect() if loaded else None
        if expectation is not None:
            self._converse(expectation)
        self._inspect()
        self.worker.end()
        if self.options.ghosts and not self.verdict.reasons and expectation is not None:
            if findings.can_be_haunted(self.source):
                self._replay(expectation)
            else:
                self.ghosts = {"reached": {}, "tested": [], "idle_kernels": [], "hiding": []}
        self._decide_on_source()
        return self._report(layers)

    def _load(self) -> bool:
        if self.worker is None:
            return False
        if len(self.source) > SOURCE_BYTES:
            self.verdict.reject("build_failed", f"a source of {len(self.source)} bytes")
            return False
        self.say("loading the candidate")
        try:
            reply = self.worker.ask({"op": "load"}, limit_s=self.options.load_limit_s)
        except WorkerEndedError as error:
            self.verdict.reject(
                "build_failed" if error.reason == "crashed" else error.reason, error.detail or "while loading"
            )
            return False
        failed = replies.failure(reply)
        if failed is not None:
            self.verdict.reject("build_failed", failed)
            return False
        return True

    def _expect(self) -> Expectation:
        if self.worker is None or self.reference is None:
            raise JudgeError("the workers are not running", "report this")
        self.say("drawing the plan and computing what is expected")
        began = time.monotonic()
        self.seed = secrets.randbits(128)
        self.plan = plan.draw(self.operator.name, self.workloads, master_seed=self.seed, calls=self.options.calls)
        self.worker.pause(stopped=True)
        try:
            expectation = self.reference.compute(self.plan, limit_s=600)
        finally:
            self.worker.pause(stopped=False)
        self.seconds["reference"] = time.monotonic() - began
        return expectation

    def _converse(self, expectation: Expectation) -> None:
        if self.worker is None or self.plan is None:
            return
        self.say(f"{len(self.plan.cases)} calls")
        began = time.monotonic()
        talk = Conversation(
            self.worker, self.arena, self.operator, self.plan, expectation, limit_s=self.options.call_limit_s
        )
        talk.run(self.verdict.reject)
        self.cases = talk.results
        self.seconds["calls"] = time.monotonic() - began
        hard = [name for name in talk.changed if name not in _SOFT_CHANGES]
        soft = [name for name in talk.changed if name in _SOFT_CHANGES]
        if hard:
            self.verdict.reject("changed_environment", report.escaped(", ".join(hard), 300))
        elif soft:
            self.verdict.doubt("changed_environment", report.escaped(", ".join(soft), 300))

    def _inspect(self) -> None:
        """Look at what the worker leaves behind, however it fared: blocked calls and files."""
        if self.worker is None:
            return
        for name in sorted(self.worker.blocked):
            if name in _MILD:
                self.verdict.doubt("forbidden_call", f"{name} was refused")
            else:
                self.verdict.reject("forbidden_call", f"{name} was refused")
        left = self.worker.files_left()
        if left:
            self.verdict.reject("wrote_files", report.escaped(", ".join(left), 200))

    def _replay(self, expectation: Expectation) -> None:
        if self.plan is None:
            return
        self.say("ghost replay")
        began = time.monotonic()
        self.ghosts = replay(
            self.source, self.operator, self.plan, expectation, place=self.place, limits=self.limits,
            triton=self.triton, limit_s=self.options.call_limit_s,
        )  # fmt: skip
        if "stopped" in self.ghosts:
            self.verdict.doubt("replay_stopped", report.escaped(str(self.ghosts["stopped"]), 80))
        for name in self.ghosts.get("idle_kernels", ()):
            self.verdict.reject("idle_kernel", report.escaped(name, 80))
        for name in self.ghosts.get("hiding", ()):
            self.verdict.reject("fallback_hides_kernel", report.escaped(name, 80))
        self.seconds["ghosts"] = time.monotonic() - began

    def _decide_on_source(self) -> None:
        self.found = findings.scan(self.source[:SOURCE_BYTES])
        codes = sorted({str(one["code"]) for one in self.found} & findings.REVIEW)
        if codes and not self.verdict.reasons:
            self.verdict.doubt("static_finding", ", ".join(codes))

    def _report(self, layers: dict[str, Any]) -> Report:
        unique = tuple(dict.fromkeys(self.verdict.reasons + self.verdict.review))
        return Report(
            operator=self.operator.name,
            verdict=self.verdict.word(),
            reasons=unique,
            details=tuple(dict.fromkeys(self.verdict.details))[:40],
            cases=tuple(self.cases),
            source_sha256=hashlib.sha256(self.source).hexdigest(),
            plan_sha256=None if self.plan is None else self.plan.sha256,
            master_seed=None if self.seed is None else f"{self.seed:032x}",
            sandbox={"active": layers.get("active", {}), "verified": layers.get("verified", {})},
            blocked=tuple(sorted(self.worker.blocked)) if self.worker else (),
            findings=self.found,
            delegates=findings.delegates(self.source[:SOURCE_BYTES]),
            ghosts=self.ghosts,
            output=report.escaped(self.worker.output()[-4000:], 2000) if self.worker else "",
            seconds={name: round(value, 3) for name, value in self.seconds.items()},
        )


def _require(layers: dict[str, Any]) -> None:
    broken = [name for name in REQUIRED if not layers.get("verified", {}).get(name)]
    if broken:
        raise JudgeError(
            f"the sandbox does not hold here: {', '.join(broken)}",
            "the judge needs Linux with Landlock and seccomp: kb doctor",
        )
