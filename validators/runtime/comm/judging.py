"""The judge of communication schemes: decides from the bytes of every rank, and from those on the wire between them.

Order: freeze and hash the source; start the ranks, each in a sandbox of its own, and the switch between them; load the
candidate on every rank; only then draw the seed and with it inputs that differ by rank; then the rounds. In each, all
ranks are called at once, every output of every rank is compared, what was moved is compared with what must be moved,
and nothing may be left on the wire.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from subprocess import SubprocessError
from typing import Any

import torch

from kb.validators import operators
from kb.validators.operators.spec import Operator, Workload
from kb.validators.runtime import accelerator, findings, plan, replies, report
from kb.validators.runtime.comm import declared, meeting
from kb.validators.runtime.comm.crew import Crew
from kb.validators.runtime.comm.rounds import Rounds
from kb.validators.runtime.comm.trials import Trials
from kb.validators.runtime.driver import DriverError
from kb.validators.runtime.errors import JudgeError, WorkerEndedError
from kb.validators.runtime.report import CaseResult, Report
from kb.validators.runtime.verdicts import SOURCE_BYTES, Verdict
from kb.validators.runtime.workplace import Workplace

_BARE = 0.5
"""From this share of the traffic on, the library's version of the operator does the work: there is no scheme."""


def judge_comm(
    operator_name: str,
    source: bytes,
    *,
    device: str = "cpu",
    transport: str | None = None,
    load_limit_s: float = 120.0,
    call_limit_s: float = 30.0,
    memory_bytes: int = 4 << 30,
    calls: tuple[int, int] = (3, 6),
    workloads: Sequence[Workload] | None = None,
    dtypes: Sequence[str] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Judge one communication scheme.

    Args:
        operator_name: One of ``operators.COMM``.
        source: The candidate's file, UTF-8 Python with a function ``run`` of the operator's signature. ``group`` is a
            process group of ``torch.distributed``; a parameter ``link`` gets one-sided access to windows of the ranks.
        device: ``cpu``, or ``cuda`` for one GPU a rank.
        transport: ``switch`` (the judge's own, exact in bytes), ``gloo`` or ``nccl``; None for the device's own: the
            switch on a CPU, NCCL on GPUs.
        load_limit_s: Seconds for importing the candidate.
        call_limit_s: Seconds for one call on all ranks.
        memory_bytes: Resident memory that a rank may take.
        calls: Least and most calls of one workload.
        workloads: None: the operator's awkward workloads, and on GPUs those of its targets too.
        dtypes: Only workloads of these; None for all.
        say: Called with a phrase at each step.

    Returns:
        The report; its ``comm`` holds the figures of every workload. Whatever a candidate does is a verdict.

    Raises:
        KeyError: No communication operator has this name.
        JudgeError: The judge itself cannot work here; never an acceptance.
    """
    if operator_name not in operators.COMM:
        raise KeyError(operator_name)
    spec = operators.load(operator_name)
    chosen = transport or (meeting.SWITCH if device == accelerator.CPU else meeting.NCCL)
    kept = _kept(spec, workloads, dtypes, device)
    world_size = max(4, *(one.axes["world_size"] for one in kept))
    _require_devices(device, chosen, world_size)
    try:
        state = _Judgement(spec, source, kept, say)
        try:
            crew = Crew(
                source, place=state.place, world_size=world_size, memory_bytes=memory_bytes, transport=chosen,
                device=device,
            )  # fmt: skip
            state.crew = crew
            return state.run(load_limit_s, call_limit_s, calls)
        finally:
            state.close()
    except (OSError, MemoryError, SubprocessError) as error:
        raise JudgeError(f"the judge ran out of something: {error!r}", "free some memory: kb doctor") from error


def _kept(
    spec: Operator, asked: Sequence[Workload] | None, dtypes: Sequence[str] | None, device: str
) -> tuple[Workload, ...]:
    """Return the workloads that are judged.

    Raises:
        JudgeError: None is left.
    """
    usual = [one for one in spec.workloads if one.use == "awkward" or device != accelerator.CPU]
    kept = tuple(one for one in (usual if asked is None else asked) if dtypes is None or one.dtype in dtypes)
    if not kept:
        raise JudgeError(f"no workload of {spec.name} is left to judge", f"kb operators {spec.name}")
    return kept


def _require_devices(device: str, transport: str, world_size: int) -> None:
    """Ask for what the transport needs before anything is started.

    Raises:
        JudgeError: It is not there.
    """
    if transport not in meeting.TRANSPORTS:
        raise JudgeError(f"no transport is called {transport!r}", f"one of {', '.join(meeting.TRANSPORTS)}")
    if (transport == meeting.NCCL) != (device != accelerator.CPU):
        raise JudgeError(f"{transport} does not join ranks on {device}", "nccl joins GPUs; switch and gloo the CPU")
    if device == accelerator.CPU:
        return
    for rank in range(world_size):
        try:
            accelerator.facts(f"cuda:{rank}")
        except DriverError as error:
            raise JudgeError(
                f"{world_size} ranks need as many GPUs, and there are {rank}: {error}",
                "judge its values on the CPU: --device cpu",
            ) from error


class _Judgement:
    """One run of the judge; holds what has to be ended whatever happens."""

    def __init__(
        self, operator: Operator, source: bytes, workloads: tuple[Workload, ...], say: Callable[[str], None]
    ) -> None:
        self.operator, self.source, self.workloads, self.say = operator, source, workloads, say
        self.verdict = Verdict()
        self.seconds: dict[str, float] = {}
        self.plan: plan.Plan | None = None
        self.seed: int | None = None
        self.wire: str | None = None
        self.rounds: Rounds | None = None
        self.crew: Crew | None = None
        self.place = Workplace()

    def close(self) -> None:
        """End what still runs and give memory back."""
        if self.crew is not None:
            self.crew.end()
        self.place.close()

    def run(self, load_limit_s: float, call_limit_s: float, calls: tuple[int, int]) -> Report:
        """Do all steps and decide."""
        crew = self._crew()
        self.say(f"starting {crew.world_size} ranks")
        began = time.monotonic()
        layers = crew.wait_ready(limit_s=90)
        self.seconds["start"] = time.monotonic() - began
        if self._declared() and self._load(load_limit_s):
            self._judge(call_limit_s, calls)
        for one in crew.workers.values():
            self.verdict.on_remains(one)
        self._decide_on_source()
        return self._report(layers)

    def _crew(self) -> Crew:
        if self.crew is None:
            raise JudgeError("the ranks are not running", "report this")
        return self.crew

    def _declared(self) -> bool:
        """Read what the source says of its precision on the wire."""
        try:
            self.wire = declared.wire_precision(self.source[:SOURCE_BYTES])
        except ValueError as error:
            self.verdict.reject("wire_precision", str(error))
            return False
        if self.wire is not None and self.operator.lossy is None:
            self.verdict.reject("wire_precision", f"{self.operator.name} sends data as they are, not in {self.wire}")
            return False
        return True

    def _load(self, limit_s: float) -> bool:
        if len(self.source) > SOURCE_BYTES:
            self.verdict.reject("build_failed", f"a source of {len(self.source)} bytes")
            return False
        self.say("loading the candidate")
        crew = self._crew()
        answers = crew.ask({rank: {"op": "load"} for rank in crew.workers}, limit_s=limit_s, stall_s=limit_s)
        for rank, one in answers.items():
            failed = self._failure(one.reply, one.ended)
            if failed is not None and not one.given_up:
                self.verdict.reject(failed[0], f"rank {rank}: {failed[1]}")
        if any(one.failed for one in answers.values()) and not self.verdict.reasons:
            self.verdict.reject("timed_out", "while loading")
        return not self.verdict.reasons

    def _failure(self, reply: dict[str, Any] | None, ended: WorkerEndedError | None) -> tuple[str, str] | None:
        if ended is not None:
            reason = "build_failed" if ended.reason == "crashed" else ended.reason
            return reason, ended.detail or "while loading"
        try:
            failed = replies.failure(reply or {})
        except replies.ForgedReplyError as error:
            return "forged_protocol", str(error)
        return None if failed is None else ("build_failed", failed)

    def _judge(self, limit_s: float, calls: tuple[int, int]) -> None:
        crew = self._crew()
        self.say("drawing the plan and computing what is expected")
        began = time.monotonic()
        self.seed = secrets.randbits(128)
        self.plan = plan.draw(self.operator.name, self.workloads, master_seed=self.seed, calls=calls)
        for one in crew.workers.values():
            one.pause(stopped=True)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # small tensors, on a host that the ranks share
        try:
            trials = Trials(self.operator, self.plan, world_size=crew.world_size, wire=self.wire)
        finally:
            torch.set_num_threads(threads)
            for one in crew.workers.values():
                one.pause(stopped=False)
        self.seconds["reference"] = time.monotonic() - began
        self.say(f"{len(self.plan.cases)} rounds")
        began = time.monotonic()
        self.rounds = Rounds(crew, self.operator, self.plan, trials, limit_s=limit_s)
        self.rounds.run(self.verdict.reject)
        self.verdict.on_changes(self.rounds.changed)
        self.seconds["calls"] = time.monotonic() - began

    def _decide_on_source(self) -> None:
        self.found = findings.scan(self.source[:SOURCE_BYTES])
        if self.verdict.reasons:
            return
        if self.rounds is not None and self.rounds.delegated_share() >= _BARE:
            share = f"{self.rounds.delegated_share():.0%} of what was moved"
            self.verdict.doubt("bare_collective", f"{share} went through the library's own {self.operator.name}")
        codes = sorted({str(one["code"]) for one in self.found} & findings.REVIEW)
        if codes:
            self.verdict.doubt("static_finding", ", ".join(codes))

    def _delegates(self) -> tuple[str, ...]:
        """Name the library calls that do some of the work: in the source, and seen on the wire."""
        source = self.source[:SOURCE_BYTES]
        seen = set(self.rounds.collectives) if self.rounds is not None else set()
        library = {f"torch.distributed.{name}" for name in declared.collectives(source) | seen}
        return tuple(sorted({*findings.delegates(source), *library}))

    def _comm(self) -> dict[str, Any]:
        crew = self._crew()
        rows = []
        for which, figures in sorted(self.rounds.figures.items()) if self.rounds is not None else []:
            workload = self.workloads[which]
            row = {"axes": dict(workload.axes), "dtype": workload.dtype, "law": workload.law}
            rows.append({"workload": row, **figures.to_json()})
        return {
            "transport": crew.transport,
            "ranks": crew.world_size,
            "wire": self.wire,
            "collectives": dict(sorted(self.rounds.collectives.items())) if self.rounds is not None else {},
            "workloads": rows,
        }

    def _report(self, layers: dict[str, Any]) -> Report:
        crew = self._crew()
        cases: list[CaseResult] = [] if self.rounds is None else self.rounds.results
        blocked = {name for one in crew.workers.values() for name in one.blocked}
        printed = "".join(one.output()[-1000:] for one in crew.workers.values())
        return Report(
            operator=self.operator.name,
            verdict=self.verdict.word(),
            reasons=tuple(dict.fromkeys(self.verdict.reasons + self.verdict.review)),
            details=tuple(dict.fromkeys(self.verdict.details))[:40],
            cases=tuple(cases),
            source_sha256=hashlib.sha256(self.source).hexdigest(),
            plan_sha256=None if self.plan is None else self.plan.sha256,
            master_seed=None if self.seed is None else f"{self.seed:032x}",
            sandbox={"active": layers.get("active", {}), "verified": layers.get("verified", {})},
            blocked=tuple(sorted(blocked)),
            findings=self.found,
            delegates=self._delegates(),
            ghosts={},
            output=report.escaped(printed, 2000),
            seconds={name: round(value, 3) for name, value in self.seconds.items()},
            comm=self._comm(),
        )
