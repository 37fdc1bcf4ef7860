"""The opponents of one candidate: its baselines, started, tried out alone, the strongest of them chosen.

Nothing of a candidate runs before that is done.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from kb.validators.operators.spec import Arguments, Operator, Workload
from kb.validators.runtime import accelerator, building
from kb.validators.runtime.assessing import ArbiterProcess
from kb.validators.runtime.errors import JudgeError, WorkerEndedError
from kb.validators.runtime.pairing import Regime
from kb.validators.runtime.shaping import (
    Effort,
    Trial,
    changes_show,
    drawn_ahead,
    may_be_copied,
    reading_bounds,
    try_out,
)
from kb.validators.runtime.sides import FailedError, Side
from kb.validators.runtime.supply import ShapesVaryError, Supply


@dataclass(frozen=True)
class Baseline:
    """What is timed against."""

    name: str
    """The library call: ``torch.nn.functional.rms_norm``."""
    version: str
    """``torch 2.11.0+cu130``."""
    source: bytes
    """A candidate's file with ``run``; trusted."""
    takes: Callable[[Workload], bool] = lambda _: True
    """Whether it can do a workload."""


@dataclass
class Task:
    """One workload in one regime."""

    workload: Workload
    regime: Regime
    baseline: Baseline
    trial: Trial
    others: list[str] = field(default_factory=list)
    """Names of the baselines that were slower."""
    fallbacks: list["Task"] = field(default_factory=list)
    """The same against each of those, the fastest first: should results of the baseline be wrong."""
    place: int = 0
    """Number of workload and regime among all."""
    example: Arguments | None = None
    """A draw of the workload, from which sizes are read."""

    def without_baseline(self) -> "Task | None":
        """Return the same against the next baseline, None if there is none."""
        return _strongest(self.fallbacks, self.place) if self.fallbacks else None


def shown(workload: Workload) -> str:
    """Return a workload in words."""
    axes = ", ".join(f"{name} {size}" for name, size in workload.axes.items())
    return f"{axes}, {workload.dtype}"


class Lineup:
    """All baselines that can do some of the workloads; whoever makes it ends its sides."""

    def __init__(
        self,
        operator: Operator,
        workloads: Sequence[Workload],
        *,
        side: Callable[[bytes], Side],
        kind: str,
        say: Callable[[str], None],
        notes: list[str],
    ) -> None:
        """Take note of what is to be done; ``open`` begins.

        Args:
            operator: The trusted spec.
            workloads: What is timed.
            side: Starts a process for a source.
            kind: ``cpu`` or ``cuda``.
            say: Called with a phrase at each step.
            notes: Where it is told what cannot be done, and why.
        """
        self.operator, self.workloads, self.kind = operator, workloads, kind
        self.say, self.notes, self._side = say, notes, side
        self.sides: dict[bytes, Side] = {}
        """By source: those that run and rest."""
        self._known: dict[bytes, tuple[Baseline, list[Workload]]] = {}
        self._supplies: dict[tuple[int, bool], Supply] = {}
        """By workload and whether weights are shared; while baselines are tried out."""
        self._copied: dict[int, bool] = {}
        """By workload: whether one changed element shows in the results."""

    def open(self, baselines: Sequence[Baseline]) -> None:
        """Start them, on a GPU side by side, and have their kernels built; those that cannot are told of."""
        self.say("starting the baselines")
        made: list[tuple[Baseline, list[Workload], Side]] = []
        for baseline in baselines:
            fitting = [w for w in self.workloads if baseline.takes(w)]
            if fitting:
                made.append((baseline, fitting, self._side(baseline.source)))
        # On a CPU they would take each other's cores.
        with ThreadPoolExecutor(1 if self.kind == accelerator.CPU else max(1, len(made))) as pool:
            faults = list(pool.map(lambda one: self.fault(one[2], one[1], one[0].name), made))
        for (baseline, fitting, side), fault in zip(made, faults, strict=True):
            if fault is None:
                side.rest()
                self.sides[baseline.source] = side
                self._known[baseline.source] = baseline, fitting
            else:
                self.notes.append(fault)
                side.end()

    def fault(self, side: Side, workloads: Sequence[Workload], name: str) -> str | None:
        """Wait until a baseline can be called; returns why it cannot be here, or None."""
        try:
            side.start(self.operator, workloads)
        except (FailedError, WorkerEndedError) as error:
            return f"{name}: {str(error)[:200]}{side.said()}"
        return None

    def rehearse(self, regimes: Sequence[Regime], effort: Effort, *, arbiter: ArbiterProcess | None = None) -> None:
        """Do what ``choose`` needs and nobody has to be alone for: draw contents, and see whether changes show.

        Args:
            regimes: How it will be timed.
            effort: How much.
            arbiter: Compares the results of heavy workloads.
        """
        self.say("drawing contents")
        cold = next((one for one in regimes if one.cache == "cold"), None)
        for which, workload in enumerate(self.workloads):
            if not any(workload in fitting for _, fitting in self._known.values()):
                continue
            for regime in regimes:
                supply = self._supply(workload, regime)
                with contextlib.suppress(ShapesVaryError):  # trying out tells
                    supply.kept(drawn_ahead(supply, self.kind, effort))
            if cold is not None and self.kind != accelerator.CPU:
                supply = self._supply(workload, cold)
                self._copied[which] = may_be_copied(supply, self.kind) and self._changes_show(
                    supply, arbiter if building.heavy(self.operator, workload) else None
                )

    def _changes_show(self, supply: Supply, arbiter: ArbiterProcess | None) -> bool:
        """Ask the first baseline whose results are right."""
        for source, (baseline, fitting) in self._known.items():
            if supply.workload not in fitting or source not in self.sides:
                continue
            self.say(f"whether changes show, by {baseline.name}")
            try:
                show = changes_show(self.sides[source], supply, arbiter)
                self.sides[source].release()
            except (FailedError, WorkerEndedError, ShapesVaryError):
                with contextlib.suppress(FailedError, WorkerEndedError):
                    self.sides[source].release()
                continue  # trying it out tells
            if show is not None:
                return show
        return False

    def choose(self, regimes: Sequence[Regime], peaks: Mapping[str, Any], effort: Effort) -> list[Task]:
        """Time every baseline alone; the fastest one is the opponent of a workload in a regime.

        Sides that are no opponent, or broke, are ended.

        Args:
            regimes: How.
            peaks: What ``peaks.measure`` returned.
            effort: How much is measured.
        """
        tried: dict[tuple[int, int], list[Task]] = {}
        for source, side in list(self.sides.items()):
            for task in self._tried(side, source, regimes, peaks, effort):
                key = self.workloads.index(task.workload), regimes.index(task.regime)
                tried.setdefault(key, []).append(task)
            if source in self.sides:
                try:
                    side.release()  # others may be timed before it is an opponent
                except WorkerEndedError:
                    self.sides.pop(source).end()
        self._supplies.clear()
        self._copied.clear()
        for which, workload in enumerate(self.workloads):
            if not any(key[0] == which for key in tried):
                self.notes.append(f"{shown(workload)}: no baseline")
        best = [_strongest(tried[key], place) for place, key in enumerate(sorted(tried))]
        kept = {task.baseline.source for task in best}
        for source in [one for one in self.sides if one not in kept]:
            self.sides.pop(source).end()
        return best

    def _tried(
        self, side: Side, source: bytes, regimes: Sequence[Regime], peaks: Mapping[str, Any], effort: Effort
    ) -> Iterator[Task]:
        baseline, workloads = self._known[source]
        self.say(f"trying out {baseline.name}")
        for workload in workloads:
            for regime in regimes:
                label = f"{baseline.name}, {shown(workload)}, {regime.cache}, {regime.launch}"
                supply = self._supply(workload, regime)
                try:
                    copied = self._copied.get(self.workloads.index(workload), False)
                    copied = copied and reading_bounds(supply, self.kind, peaks)
                    trial = try_out(side, supply, regime=regime, peaks=peaks, effort=effort, copied=copied)
                except FailedError as error:
                    self.notes.append(f"{label}: {error.detail[:200]}{side.said()}")
                except ShapesVaryError:
                    self.notes.append(f"{label}: the shapes of the arguments vary from call to call")
                except (WorkerEndedError, JudgeError) as error:
                    self.notes.append(f"{label}: {str(error)[:200]}{side.said()}")
                    self.sides.pop(source).end()  # to be started again if it is an opponent
                    return
                else:
                    if trial is None:
                        self.notes.append(f"{label}: does not fit into the cache")
                    else:
                        yield Task(workload, regime, baseline, trial, example=supply.example)

    def _supply(self, workload: Workload, regime: Regime) -> Supply:
        shared = regime.cache == "warm"
        key = self.workloads.index(workload), shared
        if key not in self._supplies:
            self._supplies[key] = Supply(self.operator, workload, shared=shared)
        return self._supplies[key]

    def opponent(self, tasks: Sequence[Task]) -> Side:
        """Return the side of some tasks' baseline, which rests since it was tried out, or start it in fresh processes.

        Whoever asks ends it.

        Raises:
            JudgeError: It could be started before, and now it cannot.
        """
        baseline = tasks[0].baseline
        side = self.sides.pop(baseline.source, None)
        if side is not None:
            return side
        side = self._side(baseline.source)
        fault = self.fault(side, [task.workload for task in tasks], baseline.name)
        if fault is not None:
            side.end()
            raise JudgeError(f"{fault}: it could not be started again", "free some memory")
        return side

    def close(self) -> None:
        """End what still rests."""
        while self.sides:
            self.sides.popitem()[1].end()


def _strongest(tasks: Sequence[Task], place: int) -> Task:
    """Return the task against the fastest baseline; it knows the others."""
    fastest, *rest = sorted(tasks, key=lambda one: one.trial.call_us)
    names = {one.baseline.name for one in rest} - {fastest.baseline.name}
    return replace(fastest, others=sorted(names), fallbacks=rest, place=place)
