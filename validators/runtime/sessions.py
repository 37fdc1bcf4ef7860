"""Honest timing of one candidate: the public call, and the rounds that it consists of.

Order: start the baselines; measure the machine's peaks; try the baselines out alone, which fixes the number of calls
and picks the strongest one for each workload and regime; only then start the candidate; run the sessions; run those
that show a difference again, in fresh processes, and let the second result replace the first. Everything that was
measured goes into the samples, from which ``statistics.recompute`` gets every figure of the result.

Starting processes and building kernels needs cores, measuring needs the device to itself: ``timing_steps`` says before
each step which of both it is, so that whoever times many candidates can start some of them side by side.
"""

import contextlib
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kb.validators.operators.spec import Operator, Workload
from kb.validators.runtime import accelerator, assessing, building, peaks, replies, report, statistics, turns
from kb.validators.runtime.errors import JudgeError, WorkerEndedError
from kb.validators.runtime.floors import floor_of, operand_dtype
from kb.validators.runtime.lineup import Baseline, Lineup, Task, shown
from kb.validators.runtime.pairing import BASELINE, NotCapturableError, Regime, Session, WrongBaselineError
from kb.validators.runtime.shaping import Effort
from kb.validators.runtime.sides import FailedError, Side
from kb.validators.runtime.stopwatch import Stopwatch
from kb.validators.runtime.telemetry import Telemetry
from kb.validators.runtime.turns import ALONE, TOGETHER
from kb.validators.runtime.verdicts import Verdict
from kb.validators.runtime.workplace import Workplace

REGIMES: Mapping[str, tuple[Regime, ...]] = {
    "cpu": (Regime("cold", "eager"), Regime("warm", "eager")),
    "cuda": (Regime("cold", "eager"), Regime("cold", "graph"), Regime("warm", "graph")),
}
"""What is measured if nothing else is asked for."""

_HOST_BYTES, _HOST_FLOPS = 32 << 20, 500_000_000
"""Workloads beyond these are not timed on a CPU: one call would take longer than it tells."""

Say = Callable[[str], None]

Steps = Generator[str, None, "Timed"]
"""Yields what the step is that comes next; returns what came of all."""


@dataclass(frozen=True)
class Timed:
    """What came of timing."""

    timing: tuple[dict[str, Any], ...]
    """One a workload and regime, in the form of a record."""
    samples: dict[str, Any]
    """The side file: all batches of all sessions, the superseded ones too."""
    verdict: Verdict
    """Reasons to reject or doubt the candidate, found while it was timed."""
    notes: tuple[str, ...]
    """What was not timed, and why."""


def workloads_of(operator: Operator, *, device: str, dtypes: Sequence[str] | None = None) -> list[Workload]:
    """Return the workloads worth timing on a device: those of targets, on a CPU the small ones of them.

    Args:
        operator: The trusted spec.
        device: ``cpu`` or ``cuda:N``.
        dtypes: Only workloads of these; None for all.
    """
    found = [w for w in operator.workloads if w.use == "target" and (dtypes is None or w.dtype in dtypes)]
    if device != accelerator.CPU:
        return found
    costs = [operator.cost(w.axes, w.dtype) for w in found]
    return [
        w for w, cost in zip(found, costs, strict=True)
        if cost.essential_bytes <= _HOST_BYTES and cost.flops <= _HOST_FLOPS
    ]  # fmt: skip


def time_candidate(
    operator: Operator,
    source: bytes,
    *,
    baselines: Sequence[Baseline],
    workloads: Sequence[Workload],
    regimes: Sequence[Regime] | None = None,
    device: str = accelerator.CPU,
    effort: Effort | None = None,
    measured: Mapping[str, Any] | None = None,
    ceilings: Mapping[str, Mapping[str, float]] | None = None,
    memory_bytes: int = 4 << 30,
    limit_s: float = 60.0,
    progress: Say | None = None,
) -> Timed:
    """Time one candidate against the strongest of its baselines.

    Args:
        operator: The trusted spec.
        source: The candidate's file.
        baselines: At least one that takes each workload, or that workload is left out, and said.
        workloads: What is timed.
        regimes: None for those of ``REGIMES``.
        device: ``cpu`` or ``cuda:N``.
        effort: How much is measured.
        measured: What ``peaks.measure`` returned; None to measure now.
        ceilings: Published peaks of the device by dtype (``mem_gbps``, ``tflops``), where they are known.
        memory_bytes: Most resident memory of a worker.
        limit_s: Longest time for one answer of a worker.
        progress: Called with a phrase at each step.

    Returns:
        Timings, samples, reasons and notes. Whatever the candidate does is a reason.

    Raises:
        JudgeError: The judge itself cannot time here.
    """
    steps = timing_steps(
        operator, source, baselines=baselines, workloads=workloads, regimes=regimes, device=device, effort=effort,
        measured=None if measured is None else lambda: measured, ceilings=ceilings, memory_bytes=memory_bytes,
        limit_s=limit_s, progress=progress,
    )  # fmt: skip
    made: Timed = turns.finished(steps)
    return made


def timing_steps(
    operator: Operator,
    source: bytes,
    *,
    baselines: Sequence[Baseline],
    workloads: Sequence[Workload],
    regimes: Sequence[Regime] | None = None,
    device: str = accelerator.CPU,
    effort: Effort | None = None,
    measured: Callable[[], Mapping[str, Any]] | None = None,
    ceilings: Mapping[str, Mapping[str, float]] | None = None,
    memory_bytes: int = 4 << 30,
    limit_s: float = 60.0,
    progress: Say | None = None,
    watch: Stopwatch | None = None,
) -> Steps:
    """Time one candidate step by step; the first step may run beside others.

    Args:
        operator: As for ``time_candidate``, likewise what is not named here.
        source: The candidate's file.
        baselines: What is timed against.
        workloads: What is timed.
        regimes: How.
        device: Where.
        effort: How much.
        measured: Gives the measured peaks, called when this has the machine to itself; None to measure then.
        ceilings: Published peaks.
        memory_bytes: Most memory.
        limit_s: Longest time for one answer.
        progress: Called with a phrase.
        watch: Counts the seconds of each phase.

    Yields:
        ``TOGETHER`` or ``ALONE``: what the next step needs.

    Returns:
        What ``time_candidate`` returns.

    Raises:
        JudgeError: The judge itself cannot time here.
    """
    say = progress or (lambda _: None)
    clock = watch or Stopwatch()
    run = _Timing(operator, source, device, effort or Effort(), ceilings or {}, memory_bytes, limit_s, say, clock)
    with contextlib.closing(run):
        return (yield from run.steps(baselines, workloads, REGIMES[run.kind] if regimes is None else regimes, measured))


def _peaks(device: str, say: Say) -> dict[str, Any]:
    say("measuring the machine")
    try:
        return peaks.measure(device)
    except RuntimeError as error:
        raise JudgeError(str(error), "kb doctor") from error


@dataclass
class _Timing:
    """One run; holds what has to be ended whatever happens."""

    operator: Operator
    source: bytes
    device: str
    effort: Effort
    ceilings: Mapping[str, Mapping[str, float]]
    memory_bytes: int
    limit_s: float
    say: Say
    watch: Stopwatch
    notes: list[str] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    peaks: dict[str, Any] = field(default_factory=dict)
    lineup: Lineup | None = None

    def __post_init__(self) -> None:
        self.kind = self.device.partition(":")[0]
        uuid = None if self.kind == accelerator.CPU else str(accelerator.facts(self.device).get("uuid"))
        self.telemetry = Telemetry(uuid)
        self.place = Workplace()
        self.arbiter: assessing.ArbiterProcess | None = None

    def close(self) -> None:
        """End what still runs."""
        if self.lineup is not None:
            self.lineup.close()
        if self.arbiter is not None:
            self.arbiter.end()
        self.place.close()

    def steps(
        self,
        baselines: Sequence[Baseline],
        workloads: Sequence[Workload],
        regimes: Sequence[Regime],
        measured: Callable[[], Mapping[str, Any]] | None,
    ) -> Steps:
        """Try out, time, and time again what showed a difference."""
        self.watch.enter("baselines")
        self.lineup = lineup = Lineup(
            self.operator, workloads, side=self._side, kind=self.kind, say=self.say, notes=self.notes
        )
        lineup.open(baselines)
        self._start_arbiter(workloads)
        self.watch.enter("rehearsal")
        lineup.rehearse(regimes, self.effort, arbiter=self.arbiter)
        self.watch.enter("peaks")
        yield from self.watch.turn(ALONE)
        self.peaks = dict(measured()) if measured is not None else _peaks(self.device, self.say)
        self.watch.enter("try-outs")
        tasks = lineup.choose(regimes, self.peaks, self.effort)
        self.watch.enter("candidate")
        yield from self.watch.turn(TOGETHER)
        raws = yield from self._round(lineup, tasks)
        results = [raw for _, raw in raws]
        superseded: list[dict[str, Any]] = []
        timing = statistics.recompute(self._samples(results, superseded))
        again = [i for i, one in enumerate(timing) if one["verdict"] in ("FAST", "SLOW")]
        if self.effort.confirm and again and not self.verdict.reasons:
            self.watch.enter("candidate")
            yield from self.watch.turn(TOGETHER)
            self.say("confirming")
            second = yield from self._round(lineup, [raws[i][0] for i in again])
            places = {raws[i][0].place: i for i in again}
            for task, raw in second:
                at = places[task.place]
                superseded.append(results[at])
                results[at] = raw | {"confirms": True}
        if self.arbiter is not None and self.arbiter.fell_back:
            times, why = len(self.arbiter.fell_back), report.escaped(self.arbiter.fell_back[0], 200)
            self.notes.append(f"{times} comparisons were computed on the CPU: {why}")
        samples = self._samples(results, superseded)
        kept = () if self.verdict.reasons else tuple(statistics.recompute(samples))
        return Timed(kept, samples, self.verdict, tuple(self.notes))

    def _samples(self, results: list[dict[str, Any]], superseded: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "schema": 1, "device": self.kind, "operator": self.operator.name, "peaks": self.peaks,
            "results": list(results), "superseded": list(superseded),
        }  # fmt: skip

    def _start_arbiter(self, workloads: Sequence[Workload]) -> None:
        if self.kind != accelerator.CPU and any(building.heavy(self.operator, one) for one in workloads):
            self.arbiter = assessing.ArbiterProcess(self.operator.name, self.device, pause=lambda _stopped: None)

    def _side(self, source: bytes) -> Side:
        return Side(source, place=self.place, device=self.device, memory_bytes=self.memory_bytes, limit_s=self.limit_s)

    def _round(self, lineup: Lineup, tasks: Sequence[Task]) -> Generator[str, None, list[tuple[Task, dict[str, Any]]]]:
        """Start the candidate, and run the sessions of all tasks; a baseline's processes end with its last task."""
        if not tasks:
            return []
        found: list[tuple[Task, dict[str, Any]]] = []
        candidate = self._side(self.source)
        try:
            candidate.start(self.operator, [task.workload for task in tasks])
            candidate.rest()
            waiting = list(tasks)
            while waiting:
                source = waiting[0].baseline.source
                own = [task for task in waiting if task.baseline.source == source]
                waiting = [task for task in waiting if task.baseline.source != source]
                candidate.rest()
                baseline = lineup.opponent(own)
                try:
                    found += yield from self._sessions(own, candidate, baseline, waiting)
                finally:
                    baseline.end()
            self.verdict.on_changes(candidate.changed())
            self.verdict.on_remains(candidate.worker)
        except (FailedError, WorkerEndedError) as error:
            said = candidate.said()
            if self.kind != accelerator.CPU and replies.is_out_of_memory(error.detail):
                # Others may have taken it, and nobody is accepted for it.
                self.notes.append(f"there was no memory left: {report.escaped(error.detail, 200)}{said}")
            else:
                self.notes.append(f"in phase {self.watch.phase}: {error.reason}{said}")
                self.verdict.reject(error.reason, report.escaped(error.detail or "while it was timed", 300))
        finally:
            candidate.end()
        return sorted(found, key=lambda pair: pair[0].place)

    def _sessions(
        self, tasks: Sequence[Task], candidate: Side, baseline: Side, waiting: list[Task]
    ) -> Generator[str, None, list[tuple[Task, dict[str, Any]]]]:
        """Run the sessions of tasks with one baseline; where it is wrong, ``waiting`` gets the task of the next one."""
        found = []
        for task in tasks:
            self.say(f"timing {shown(task.workload)}, {task.regime.cache}, {task.regime.launch}")
            heavy = building.heavy(self.operator, task.workload)
            session = Session(
                self.operator, task.workload, regime=task.regime, shape=task.trial.shape, candidate=candidate,
                baseline=baseline, telemetry=self.telemetry, arbiter=self.arbiter if heavy else None,
                example=task.example, watch=self.watch,
            )  # fmt: skip
            try:
                blocks = yield from session.steps(is_open=partial(self._is_open, task))
            except WrongBaselineError as error:
                self.notes.append(f"{shown(task.workload)}, {task.baseline.name}: {error.message}")
                waiting += [one for one in (task.without_baseline(),) if one is not None]
                continue
            except NotCapturableError as error:
                whose = task.baseline.name if error.who == BASELINE else "the candidate"
                self.notes.append(f"{shown(task.workload)}: {whose} cannot be captured: {error.detail[:160]}")
                continue
            raw = self._raw(task, blocks, session.scrutiny.checked)
            own = frozenset({os.getpid(), *candidate.worker.pids(), *baseline.worker.pids()})
            found.append((task, raw | {"others_on_device": self.telemetry.others(own)}))
        return found

    def _is_open(self, task: Task, blocks: list[dict[str, Any]]) -> bool:
        (timing,) = statistics.recompute(self._samples([self._raw(task, blocks, 0)], []))
        return bool(timing["verdict"] == "AMBIGUOUS")

    def _raw(self, task: Task, blocks: list[dict[str, Any]], checked: int) -> dict[str, Any]:
        """Put together what the side file holds of one session."""
        workload, regime, trial = task.workload, task.regime, task.trial
        resident = self.peaks["l2_bytes"] / trial.shape.slots
        operand = operand_dtype(self.operator, workload)
        floor = floor_of(
            self.operator.cost(workload.axes, workload.dtype), dtype=operand, cache=regime.cache,
            launch=regime.launch, peaks=self.peaks, kind=self.kind, resident_bytes=resident,
            ceilings=self.ceilings.get(operand),
        )  # fmt: skip
        sweep = trial.shape.sweep_bytes if self.kind != accelerator.CPU else 0
        return {
            "workload": {
                "axes": dict(workload.axes), "dtype": workload.dtype, "law": workload.law, "note": workload.note,
            },
            "regime": {"cache": regime.cache, "launch": regime.launch},
            "baseline": {
                "name": task.baseline.name, "version": task.baseline.version,
                "source_sha256": statistics.sha256(task.baseline.source),
            },
            "weaker_baselines": task.others,
            "calls_per_batch": trial.shape.slots,
            "slots": trial.shape.slots,
            "replaced_per_batch": trial.shape.spares,
            "tail_rule": None if self.kind == accelerator.CPU else "spread",
            "compared_with_reference": checked,
            "blocks": blocks,
            "floor": floor.to_json(),
            "launch_us": self.peaks["launch_us"],
            "pipe_us": round(trial.pipe_us, 3),
            "least_pipe_us": round(trial.least_pipe_us, 3),
            "alone_us": round(trial.least_us, 4),
            "default_mhz": self.telemetry.default_mhz(),
            "sweep_floor_us": round(sweep / self.peaks["copy_gbps"] / 1.3e3, 3),
            "confirms": False,
        }  # fmt: skip
