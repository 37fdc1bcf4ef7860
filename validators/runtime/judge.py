"""The judge: says ``accepted``, ``rejected`` or ``needs_review`` of a candidate, from bytes alone.

Order: freeze and hash the source; start the reference worker and the sandboxed candidate worker; load the candidate;
only then draw the seed and the plan; compute what is expected while the candidate is stopped; then the conversation,
in which every output of every call is compared here; then the ghost replay in another worker.
"""

import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from subprocess import SubprocessError
from typing import Any

from kb.validators import operators
from kb.validators.operators.spec import Operator, Workload
from kb.validators.runtime import (
    accelerator,
    assessing,
    building,
    findings,
    kernels,
    plan,
    replies,
    report,
    sandbox,
    sanitizer,
    watch,
)
from kb.validators.runtime.allocation import judging
from kb.validators.runtime.arena import Arena
from kb.validators.runtime.comm.judging import judge_comm
from kb.validators.runtime.conversation import Conversation
from kb.validators.runtime.driver import DriverError
from kb.validators.runtime.errors import JudgeError, WorkerEndedError
from kb.validators.runtime.expectation import Expectation, ReferenceWorker
from kb.validators.runtime.haunting import replay
from kb.validators.runtime.report import CaseResult, Report
from kb.validators.runtime.verdicts import MILD, SOURCE_BYTES, Verdict, require
from kb.validators.runtime.worker import Worker
from kb.validators.runtime.workplace import Workplace

ARENA_BYTES = 512 << 20
"""Shared memory of one judgement; only touched pages cost anything."""

_EXCESSES = frozenset({"memory_limit", "disk_limit"})
"""Limits that a candidate goes over by itself, whichever of its workers is looked at."""


@dataclass(frozen=True)
class Options:
    """How a candidate is judged."""

    load_limit_s: float = 120.0
    call_limit_s: float = 30.0
    memory_bytes: int = 4 << 30
    ghosts: bool = True
    calls: tuple[int, int] = (3, 6)
    device: str = "cpu"
    """``cpu`` or ``cuda:N``."""
    sanitizers: tuple[str, ...] = ()
    """Tools of compute-sanitizer for small shapes on a GPU: ``memcheck``, ``racecheck``, ``initcheck``."""
    workloads: Sequence[Workload] | None = None
    """None: the operator's awkward workloads, and on a GPU those of its targets too."""
    dtypes: Sequence[str] | None = None
    """None: all that the operator has; else only workloads of these."""
    native: bool = False
    """Whether the candidate is known to build a library of its own with a compiler, as CUDA C++ does."""
    transport: str | None = None
    """What joins the ranks of a communication scheme; None: the judge's switch on a CPU, NCCL on GPUs."""


def judge(
    operator_name: str,
    source: bytes,
    *,
    options: Options | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Judge one candidate for values.

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
    if operator_name in operators.ALLOCATION:
        return judging.judge_allocation(
            operator_name, source, device=chosen.device, load_limit_s=chosen.load_limit_s,
            call_limit_s=chosen.call_limit_s, memory_bytes=chosen.memory_bytes, workloads=chosen.workloads, say=say,
        )  # fmt: skip
    if operator_name in operators.COMM:
        return judge_comm(
            operator_name, source, device=chosen.device, transport=chosen.transport, load_limit_s=chosen.load_limit_s,
            call_limit_s=chosen.call_limit_s, memory_bytes=chosen.memory_bytes, calls=chosen.calls,
            workloads=chosen.workloads, dtypes=chosen.dtypes, say=say,
        )  # fmt: skip
    operator = operators.load(operator_name)
    if chosen.device != accelerator.CPU:
        _require_gpu(chosen.device)
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
        options.workloads
        if options.workloads is not None
        else [w for w in operator.workloads if w.use == "awkward" or options.device != accelerator.CPU]
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
        self.verdict = Verdict()
        self.cases: list[CaseResult] = []
        self.seconds: dict[str, float] = {}
        self.plan: plan.Plan | None = None
        self.seed: int | None = None
        self.ghosts: dict[str, Any] = {}
        self.kernels: dict[str, Any] = {}
        self.sanitizer: dict[str, Any] = {}
        self.triton = b"triton" in source
        self.gpu = options.device != accelerator.CPU
        self.large = frozenset(i for i, w in enumerate(workloads) if self.gpu and building.heavy(operator, w))
        self.limits = sandbox.limits_for(options.device, memory_bytes=options.memory_bytes)
        self.place = Workplace()
        self.arena = Arena(assessing.EXCHANGE_BYTES if self.large else ARENA_BYTES)
        self.arbiter: assessing.ArbiterProcess | None = None
        self.reference: ReferenceWorker | None = None
        self.worker: Worker | None = None

    def close(self) -> None:
        """End what still runs and give memory back."""
        if self.worker is not None:
            self.worker.end()
        if self.reference is not None:
            self.reference.end()
        if self.arbiter is not None:
            self.arbiter.end()
        self.arena.close()
        self.place.close()

    def run(self) -> Report:
        """Do all steps and decide."""
        self.say("starting the workers")
        began = time.monotonic()
        self.reference = ReferenceWorker(self.operator.name, self.place.folder("reference"))
        self.worker = Worker(
            self.source, place=self.place, arena=self.arena, limits=self.limits, triton=self.triton,
            device=self.options.device,
        )  # fmt: skip
        if self.large:
            self.arbiter = assessing.ArbiterProcess(
                self.operator.name, self.options.device, pause=lambda stopped: self._pause(stopped=stopped)
            )
        layers = self.worker.wait_ready(limit_s=90)
        require(layers)
        self.seconds["start"] = time.monotonic() - began
        loaded = self._load()
        expectation = self._expect() if loaded else None
        if expectation is not None:
            self._converse(expectation)
        self._inspect()
        if self.gpu and set(self.verdict.reasons) == {"crashed"} and replies.is_out_of_memory(self.verdict.details[0]):
            # Whether the candidate takes too much or others do cannot be told; it is no acceptance either way.
            raise JudgeError(f"there was no memory left: {self.verdict.details[0]}", "run fewer jobs at once")
        self.worker.end()
        if self.options.ghosts and not self.verdict.reasons and expectation is not None:
            if self.gpu or findings.can_be_haunted(self.source):
                self._replay(expectation)
            else:
                self.ghosts = {"reached": {}, "tested": [], "idle_kernels": [], "hiding": []}
        if self.options.sanitizers and self.gpu and not self.verdict.reasons and expectation is not None:
            self._sanitize(expectation)
        self._decide_on_source()
        return self._report(layers)

    def _load(self) -> bool:
        if self.worker is None:
            return False
        if len(self.source) > SOURCE_BYTES:
            self.verdict.reject("build_failed", f"a source of {len(self.source)} bytes")
            return False
        self.say("loading the candidate")
        began = time.monotonic()
        try:
            if self.gpu:
                building.open_step(self.worker)
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
        built = self._warm_up(self.worker) if self.gpu else True
        self.seconds["build"] = time.monotonic() - began
        return built

    def _warm_up(self, worker: Worker) -> bool:
        """Have all kernels compiled, then close the door to new processes."""
        self.say("building")
        limit_s = self.options.load_limit_s
        try:
            failed = building.warm_up(worker, self.arena, self.operator, self.workloads, limit_s=limit_s)
            worker.close_build(forgive=MILD)
        except WorkerEndedError as error:
            self.verdict.reject(error.reason, f"{error.detail or 'no answer'} (while building)")
            return False
        if failed is not None:
            self.verdict.reject("crashed", f"{failed} (while building)")
        return failed is None

    def _pause(self, *, stopped: bool) -> None:
        if self.worker is not None:
            self.worker.pause(stopped=stopped)

    def _expect(self) -> Expectation:
        if self.worker is None or self.reference is None:
            raise JudgeError("the workers are not running", "report this")
        self.say("drawing the plan and computing what is expected")
        began = time.monotonic()
        self.seed = secrets.randbits(128)
        self.plan = plan.draw(self.operator.name, self.workloads, master_seed=self.seed, calls=self.options.calls)
        small = self.plan.only(frozenset(range(len(self.workloads))) - self.large)
        self.worker.pause(stopped=True)
        try:
            expectation = self.reference.compute(small, limit_s=600)
        finally:
            self.worker.pause(stopped=False)
        if self.arbiter is not None:
            expectation = assessing.DeviceExpectation(expectation, self.arbiter, self.plan, self.large)
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
        if self.arbiter is not None and self.arbiter.fell_back:
            self.say(f"{len(self.arbiter.fell_back)} calls were compared on the CPU: {self.arbiter.fell_back[0]}")
        self.cases = talk.results
        self.seconds["calls"] = time.monotonic() - began
        self.verdict.on_changes(talk.changed)
        self.verdict.on_threads(talk.threads)

    def _inspect(self) -> None:
        """Look at what the worker leaves behind, however it fared: blocked calls and files."""
        if self.worker is None:
            return
        started = watch.STARTS & set(self.worker.blocked) if self.gpu else frozenset()
        unbuilt = bool(started) and set(self.verdict.reasons) <= {"crashed"}
        if unbuilt:
            # An honest kernel may be compiled anew for contents that no build step could foresee.
            self.verdict.reasons.clear()
            self.verdict.doubt("late_build", f"{', '.join(sorted(started))} was refused")
            self.worker.blocked = Counter({k: v for k, v in self.worker.blocked.items() if k not in started})
        self.verdict.on_remains(self.worker, unbuilt=unbuilt)

    def _replay(self, expectation: Expectation) -> None:
        if self.plan is None:
            return
        self.say("ghost replay")
        began = time.monotonic()
        self.ghosts = replay(
            self.source, self.operator, self.plan.only(frozenset(range(len(self.workloads))) - self.large),
            expectation, place=self.place, limits=self.limits, triton=self.triton, limit_s=self.options.call_limit_s,
            device=self.options.device,
        )  # fmt: skip
        if self.gpu:
            self.kernels = kernels.summary(self.ghosts.pop("kernels", ()), self.source)
            self.kernels["determinism"] = self.ghosts.pop("determinism", [])
            if self.kernels["jitted_ran"] is False:
                self.verdict.doubt("idle_kernel", "kernels are declared and none of them ran on the device")
        if (stopped := str(self.ghosts.get("stopped", ""))) in _EXCESSES:
            self.verdict.reject(stopped, "in the ghost replay, with every function in its place")
        elif stopped:
            self.verdict.doubt("replay_stopped", report.escaped(stopped, 80))
        for name in self.ghosts.get("idle_kernels", ()):
            self.verdict.reject("idle_kernel", report.escaped(name, 80))
        for name in self.ghosts.get("hiding", ()):
            self.verdict.reject("fallback_hides_kernel", report.escaped(name, 80))
        self.seconds["ghosts"] = time.monotonic() - began

    def _sanitize(self, expectation: Expectation) -> None:
        """Look for bad accesses with compute-sanitizer; a race or an unwritten read may be the tool's own mistake."""
        if self.plan is None:
            return
        self.say("compute-sanitizer")
        began = time.monotonic()
        small = self.plan.only(frozenset(range(len(self.workloads))) - self.large)
        self.sanitizer = sanitizer.check(
            self.source, small,
            lambda worker, arena: Conversation(worker, arena, self.operator, small, expectation, limit_s=120),
            tools=self.options.sanitizers, place=self.place, limits=self.limits, triton=self.triton,
            device=self.options.device,
        )  # fmt: skip
        for tool, facts in self.sanitizer.items():
            if facts.get("errors"):
                say = self.verdict.reject if tool == "memcheck" else self.verdict.doubt
                say("bad_memory_access", f"{tool}: {facts['errors']} errors; {'; '.join(facts['first'][:2])}")
        self.seconds["sanitizer"] = time.monotonic() - began

    def _decide_on_source(self) -> None:
        self.found = findings.scan(self.source[:SOURCE_BYTES])
        asking = findings.REVIEW - (findings.BUILDING if self.options.native and self.gpu else frozenset())
        codes = sorted({str(one["code"]) for one in self.found} & asking)
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
            device=self.options.device,
            kernels=self.kernels,
            sanitizer=self.sanitizer,
            output=report.escaped(self.worker.output()[-4000:], 2000) if self.worker else "",
            seconds={name: round(value, 3) for name, value in self.seconds.items()},
        )


def _require_gpu(device: str) -> None:
    """Ask for the device before anything is started.

    Raises:
        JudgeError: It is not there, or its name is none.
    """
    try:
        accelerator.facts(device)
    except (ValueError, DriverError) as error:
        raise JudgeError(f"{device} cannot be used: {error}", "nvidia-smi; kb doctor") from error
