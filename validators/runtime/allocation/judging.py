"""The judge of allocation strategies: serves them traces and keeps the books; decides from these alone.

Order: freeze and hash the source; start the sandboxed worker; load the candidate; only then draw the seed and with it
every trace; then the conversations, in which each block is placed in the judge's books, filled with contents of its
own and read before it is given back; then the clock, over batches of calls on the same traces.
"""

import hashlib
import random
import secrets
import time
from collections.abc import Callable, Sequence
from subprocess import SubprocessError
from typing import Any

from kb.validators import operators
from kb.validators.operators.allocation import DRAWN, Allocation, BlockTrace, ServingTrace
from kb.validators.operators.spec import Workload
from kb.validators.runtime import accelerator, findings, replies, report, sandbox, verdicts
from kb.validators.runtime.allocation import baselines, drawing, graphs, pages, timing
from kb.validators.runtime.allocation.bench import Bench, CaseFailedError
from kb.validators.runtime.allocation.blocks import Blocks
from kb.validators.runtime.allocation.meters import DeviceMeter, HostMeter
from kb.validators.runtime.allocation.stores import MESSAGE_BYTES, ArenaStore, ContentsError, Store, WorkerStore
from kb.validators.runtime.allocation.summing import summary
from kb.validators.runtime.arena import Arena
from kb.validators.runtime.driver import DriverError
from kb.validators.runtime.errors import JudgeError, WorkerEndedError
from kb.validators.runtime.plan import Case, Plan
from kb.validators.runtime.report import CaseResult, Report
from kb.validators.runtime.telemetry import Telemetry
from kb.validators.runtime.verdicts import SOURCE_BYTES, Verdict
from kb.validators.runtime.worker import Worker
from kb.validators.runtime.workplace import Workplace

ARENA_BYTES = 12 << 30
"""Addresses of the memory whose offsets are handed out on a CPU; only what is written to costs anything."""

_MODULE = "kb.validators.runtime.allocation.stub"
_FAILURES = 3
"""After so many failed traces the rest is not asked any more."""


def judge_allocation(
    operator_name: str,
    source: bytes,
    *,
    device: str = "cpu",
    load_limit_s: float = 120.0,
    call_limit_s: float = 30.0,
    memory_bytes: int = 4 << 30,
    workloads: Sequence[Workload] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Judge one allocation strategy.

    Args:
        operator_name: One of ``operators.ALLOCATION``.
        source: The candidate's file, UTF-8 Python with one of the operator's forms; a tuple ``LAWS`` may say which
            traces it is made for.
        device: ``cpu``, or ``cuda:N`` to hand out memory of a GPU, which is then measured from outside.
        load_limit_s: Seconds for importing the candidate.
        call_limit_s: Seconds for one call.
        memory_bytes: Resident memory that the worker may take.
        workloads: None: the operator's awkward workloads, and on a GPU those of its targets instead.
        say: Called with a phrase at each step.

    Returns:
        The report; its ``memory`` holds the figures of every trace. Whatever a candidate does is a verdict.

    Raises:
        KeyError: No allocation operator has this name.
        JudgeError: The judge itself cannot work here; never an acceptance.
    """
    spec = operators.load_allocation(operator_name)
    use = "awkward" if device == accelerator.CPU else "target"
    asked = [one for one in spec.workloads if one.use == use] if workloads is None else list(workloads)
    try:
        state = _Judgement(spec, source, device, asked, say)
        try:
            return state.run(load_limit_s, call_limit_s, memory_bytes)
        finally:
            state.close()
    except (OSError, MemoryError, SubprocessError, DriverError) as error:
        raise JudgeError(f"the judge ran out of something: {error!r}", "free some memory: kb doctor") from error


class _Judgement:
    """One run of the judge; holds what has to be ended whatever happens."""

    def __init__(
        self, spec: Allocation, source: bytes, device: str, workloads: list[Workload], say: Callable[[str], None]
    ) -> None:
        self.spec, self.source, self.device, self.workloads, self.say = spec, source, device, workloads, say
        self.verdict = Verdict()
        self.cases: list[CaseResult] = []
        self.seconds: dict[str, float] = {}
        self.plan: Plan | None = None
        self.seed: int | None = None
        self.form: str | None = None
        self.laws: list[str] | None = None
        self.place = Workplace()
        self.arena = Arena(ARENA_BYTES if device == accelerator.CPU else MESSAGE_BYTES)
        self.gpu: DeviceMeter | None = None
        self.worker: Worker | None = None
        self.figures: list[dict[str, Any]] = []

    def close(self) -> None:
        """End what still runs and give memory back."""
        if self.worker is not None:
            self.worker.end()
        if self.gpu is not None:
            self.gpu.close()
        self.arena.close()
        self.place.close()

    def run(self, load_limit_s: float, call_limit_s: float, memory_bytes: int) -> Report:
        """Do all steps and decide."""
        self.say("starting the worker")
        began = time.monotonic()
        self.worker = Worker(
            self.source, place=self.place, arena=self.arena, triton=False, device=self.device, module=_MODULE,
            limits=sandbox.limits_for(self.device, memory_bytes=memory_bytes),
        )  # fmt: skip
        layers = self.worker.wait_ready(limit_s=90)
        verdicts.require(layers)
        if self.device != accelerator.CPU:
            # What the driver and the stub's own kernels left is no file of the candidate's.
            self.worker.close_build(forgive=verdicts.MILD)
            telemetry = Telemetry(str(accelerator.facts(self.device)["uuid"]))
            self.gpu = DeviceMeter(telemetry, self.worker.pids)
        self.seconds["start"] = time.monotonic() - began
        bench = Bench(
            self.worker, self.arena, self.device, call_limit_s, HostMeter(self.worker), self.gpu,
            random.Random(secrets.randbits(128)), time.perf_counter,  # noqa: S311 - from the system's entropy
        )  # fmt: skip
        try:
            if self._load(bench, load_limit_s):
                self._converse(bench)
        except WorkerEndedError as error:
            self.verdict.reject(error.reason, error.detail or "in a conversation")
        self.verdict.on_remains(self.worker)
        self.worker.end()
        found = findings.scan(self.source[:SOURCE_BYTES])
        codes = sorted({str(one["code"]) for one in found} & findings.REVIEW)
        if codes and not self.verdict.reasons:
            self.verdict.doubt("static_finding", ", ".join(codes))
        return self._report(layers, found)

    def _load(self, bench: Bench, limit_s: float) -> bool:
        if len(self.source) > SOURCE_BYTES:
            self.verdict.reject("build_failed", f"a source of {len(self.source)} bytes")
            return False
        self.say("loading the candidate")
        try:
            reply = bench.worker.ask({"op": "load"}, limit_s=limit_s)
            failed = replies.failure(reply) or reply.get("out_of_memory")
            names = replies.names(reply, "forms")
            self.laws = None if reply.get("laws") is None else replies.names(reply, "laws")
        except WorkerEndedError as error:
            self.verdict.reject(
                "build_failed" if error.reason == "crashed" else error.reason, error.detail or "loading"
            )
            return False
        except replies.ForgedReplyError as error:
            self.verdict.reject("forged_protocol", str(error))
            return False
        if failed is not None:
            self.verdict.reject("build_failed", report.escaped(str(failed), 500))
            return False
        return self._choose(names)

    def _choose(self, names: list[str]) -> bool:
        self.form = next((form.name for form in self.spec.forms if form.name in names), None)
        if self.form is None:
            wanted = " or ".join(form.name for form in self.spec.forms)
            self.verdict.reject("build_failed", f"it has no {wanted}")
            return False
        unknown = sorted(set(self.laws or ()) - set(self.spec.laws))
        if unknown or self.laws == []:
            shown = report.escaped(", ".join(unknown) or "nothing", 200)
            self.verdict.reject("wrong_answer", f"LAWS names {shown}; there are {', '.join(self.spec.laws)}")
            return False
        kept = drawing.workloads_for(self.form, self.workloads, self.laws)
        if not kept:
            raise JudgeError(
                f"no workload of {self.spec.name} is left for {self.form}", f"kb operators {self.spec.name}"
            )
        self.seed = secrets.randbits(128)
        fitted = self.device != accelerator.CPU
        self.plan = drawing.draw(self.spec, self.form, kept, master_seed=self.seed, fitted=fitted)
        return True

    def _converse(self, bench: Bench) -> None:
        if self.plan is None or self.form is None:
            return
        self.say(f"{len(self.plan.cases)} traces")
        began = time.monotonic()
        failures = 0
        talk = _Talk(self.spec, self.plan, self.form, bench)
        for case in self.plan.cases:
            workload = self.plan.workloads[case.workload]
            try:
                figures, problem = talk.case(case), None
            except (CaseFailedError, ContentsError) as error:
                figures, problem = {}, _problem(error)
                failures += 1
                self.verdict.reject(*problem)
            except WorkerEndedError as error:
                self.cases.append(_result(workload, case, (error.reason, error.detail)))
                raise
            self.cases.append(_result(workload, case, problem))
            if figures:
                self.figures.append(_labelled(workload, case) | figures)
            if failures >= _FAILURES:
                return
        self.seconds["calls"] = time.monotonic() - began
        self.verdict.on_changes(replies.names(bench.ask("state"), "changed"))

    def _report(self, layers: dict[str, Any], found: tuple[dict[str, Any], ...]) -> Report:
        return Report(
            operator=self.spec.name,
            verdict=self.verdict.word(),
            reasons=tuple(dict.fromkeys(self.verdict.reasons + self.verdict.review)),
            details=tuple(dict.fromkeys(self.verdict.details))[:40],
            cases=tuple(self.cases),
            source_sha256=hashlib.sha256(self.source).hexdigest(),
            plan_sha256=None if self.plan is None else self.plan.sha256,
            master_seed=None if self.seed is None else f"{self.seed:032x}",
            sandbox={"active": layers.get("active", {}), "verified": layers.get("verified", {})},
            blocked=tuple(sorted(self.worker.blocked)) if self.worker else (),
            findings=found,
            delegates=(),
            ghosts={},
            output=report.escaped(self.worker.output()[-4000:], 2000) if self.worker else "",
            seconds={name: round(value, 3) for name, value in self.seconds.items()},
            device=self.device,
            memory=summary(self.form, self.laws, self.figures),
        )


class _Talk:
    """Turns a case into a conversation."""

    def __init__(self, spec: Allocation, plan: Plan, form: str, bench: Bench) -> None:
        self._spec, self._plan, self._bench = spec, plan, bench
        self._blocks = Blocks(bench, form)
        self._form = form

    def case(self, case: Case) -> dict[str, Any]:
        """Hold one conversation and return its figures."""
        trace = drawing.trace_of(self._spec, self._plan.workloads[case.workload], case)
        if isinstance(trace, BlockTrace):
            figures = self._blocks.run(trace, case.contents, case.seed)
            if "live_bytes" in figures:
                figures["baselines"] = baselines.compare(self._spec, trace, alignment=figures["alignment"])
            timed = self._form == "Allocator" or (self._form != "run" and self._bench.device != accelerator.CPU)
            if case.contents == DRAWN and timed:
                figures["us_per_operation"] = timing.of_blocks(self._bench, trace, figures["alignment"], self._form)
            return figures
        if isinstance(trace, ServingTrace):
            return self._serving(trace)
        figures = graphs.run(self._bench, trace, case.contents)
        if "live_bytes" in figures:
            figures["baselines"] = baselines.compare(self._spec, trace, alignment=trace.alignment)
        return figures

    def _serving(self, trace: ServingTrace) -> dict[str, Any]:
        bench = self._bench
        store: Store = ArenaStore(bench.arena)
        if bench.device != accelerator.CPU:
            store = WorkerStore(bench.worker, bench.arena, capacity=trace.capacity_bytes, limit_s=bench.limit_s)
        bench.host.start()
        if bench.gpu is not None:
            bench.gpu.start()
        pool = pages.WorkerPool(bench, trace)
        outside = bench.gpu.look() if bench.gpu is not None else None
        fresh = pages.room_for(pool, trace.max_tokens // 2)
        pool.calls.clear()
        figures = pages.Serving(trace, pool, store, bench).run()
        calls = list(pool.calls)
        again = pages.room_for(pool, trace.max_tokens // 2)
        if again < fresh:
            raise CaseFailedError("bad_out_of_memory", f"room for {again} sequences where there was room for {fresh}")
        figures |= {"mode": "online", "outside_bytes": outside, "page_tokens": pool.page_tokens}
        figures["host_bytes"] = bench.host_within(len(calls))
        figures["us_per_operation"] = timing.of_pages(bench, trace, calls, pool.keys)
        figures["baselines"] = baselines.compare(self._spec, trace, alignment=1)
        return figures


def _problem(error: CaseFailedError | ContentsError) -> tuple[str, str]:
    if isinstance(error, CaseFailedError):
        return error.reason, report.escaped(error.detail, 400)
    return "lost_contents", report.escaped(str(error), 400)


def _result(workload: Workload, case: Case, problem: tuple[str, str] | None) -> CaseResult:
    axes = dict(workload.axes)
    if problem is None:
        return CaseResult(axes, workload.dtype, workload.law, case.contents, "passed", 0.0)
    shown = {"crashed": "crashed", "timed_out": "timed_out"}.get(problem[0], "wrong_values")
    return CaseResult(axes, workload.dtype, workload.law, case.contents, shown, None, f"{problem[0]}: {problem[1]}")


def _labelled(workload: Workload, case: Case) -> dict[str, Any]:
    return {"law": workload.law, "axes": dict(workload.axes), "use": workload.use, "contents": case.contents}
