"""One attempt at one entry, the same on every machine: judge its code, take its times, and make the evidence."""

import importlib.util
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

from kb.validators import baselines, operators
from kb.validators.operators.spec import Workload
from kb.validators.runtime import evidence, peaks, report, sessions, statistics, telemetry, turns
from kb.validators.runtime.errors import JudgeError
from kb.validators.runtime.judge import Options, judge
from kb.validators.runtime.lineup import Baseline
from kb.validators.runtime.pairing import Regime
from kb.validators.runtime.report import Report
from kb.validators.runtime.shaping import Effort
from kb.validators.runtime.stopwatch import Stopwatch

Say = Callable[[str], None]

_NATIVE = ("cuda", "hip", "cpp", "cutlass")
"""Languages whose candidates build a library of their own."""


class Machine:
    """Where an attempt is made; its peaks are measured once, when they are first needed."""

    def __init__(self, device: str, *, ceilings: Mapping[str, Mapping[str, float]] | None = None) -> None:
        """Read what this machine says of itself.

        Args:
            device: ``cpu`` or ``cuda:N``.
            ceilings: Published peaks of the device by dtype, ``mem_gbps`` and ``tflops``, where they are known.

        Raises:
            DriverError: There is no such GPU.
            ValueError: The name has another form.
        """
        self.device = device
        self.facts = evidence.device_facts(device)
        self.ceilings = ceilings or {}
        self._peaks: dict[str, Any] | None = None

    def peaks(self) -> dict[str, Any]:
        """Return the measured peaks, and keep them with the facts.

        Raises:
            JudgeError: They cannot be measured here.
        """
        if self._peaks is None:
            try:
                self._peaks = peaks.measure(self.device)
            except RuntimeError as error:
                raise JudgeError(str(error), "kb doctor") from error
            self.facts["peaks"] = peaks.for_record(self._peaks)
        return self._peaks

    @property
    def known_peaks(self) -> dict[str, Any] | None:
        """What was measured so far."""
        return self._peaks

    def adopt(self, measured: dict[str, Any]) -> None:
        """Take over peaks that another process measured on this device a moment ago, unless there are own ones."""
        if self._peaks is None:
            self._peaks = measured
            self.facts["peaks"] = peaks.for_record(measured)


@dataclass(frozen=True)
class Attempt:
    """What came of it."""

    evidence: dict[str, Any]
    """As ``evidence_of`` makes it."""
    samples: dict[str, Any] | None
    """All samples of its timing, whose digest stands in the evidence; None if nothing was timed."""

    @property
    def side_file(self) -> bytes | None:
        """Bytes of the file that holds the samples beside the record."""
        return None if self.samples is None else statistics.written(self.samples)


def attempt(
    order: Mapping[str, Any],
    source: bytes,
    *,
    machine: Machine,
    say: Say | None = None,
) -> Attempt:
    """Judge an entry, and time it if its order says so and nothing speaks against it.

    Args:
        order: ``id``, ``version``, ``digest``, ``entry_point``, ``language`` and ``operator`` of the entry;
            ``uses`` and ``calls``, from which its plan is drawn; ``workloads``, plain, or None for the operator's own;
            ``timed``, the workloads to time, plain; ``regimes``, pairs of cache and launch, or None for the usual;
            ``effort``, fields of :class:`Effort`, or None for the usual.
        source: The entry's code.
        machine: Where it is made.
        say: Called with a phrase at each step.

    Returns:
        Evidence, not yet signed. Whatever a candidate does is a verdict.

    Raises:
        JudgeError: The judge cannot work here; says nothing of the candidate.
    """
    made: Attempt = turns.finished(attempt_steps(order, source, machine=machine, say=say))
    return made


def attempt_steps(
    order: Mapping[str, Any],
    source: bytes,
    *,
    machine: Machine,
    say: Say | None = None,
    hold: Callable[[dict[str, Any]], None] | None = None,
    watch: Stopwatch | None = None,
) -> Generator[str, None, Attempt]:
    """Make an attempt step by step; the first step may run beside others.

    Args:
        order: As for ``attempt``, likewise what is not named here.
        source: The entry's code.
        machine: Where it is made.
        say: Called with a phrase.
        hold: Called with the evidence of values before timing begins, for whoever may be out of time then.
        watch: Counts the seconds of each phase, and says in which one it failed.

    Yields:
        ``turns.TOGETHER`` or ``turns.ALONE``: what the next step needs.

    Returns:
        What ``attempt`` returns.

    Raises:
        JudgeError: The judge cannot work here.
    """
    clock = watch or Stopwatch()
    clock.enter("values")
    _require_packages(str(order["language"]))
    began = evidence.now_utc()
    low, high = order["calls"]
    workloads = None if order["workloads"] is None else [Workload(**one) for one in order["workloads"]]
    native = order["language"] in _NATIVE
    options = Options(device=machine.device, calls=(low, high), workloads=workloads, native=native)
    found = judge(order["operator"], source, options=options, progress=say)

    def evident(what: Report) -> dict[str, Any]:
        return evidence.evidence_of(
            what, order, began_utc=began, device=machine.facts, uses=order["uses"], calls=order["calls"]
        )

    if not order.get("timed") or found.verdict == report.REJECTED or evidence.family(found.operator) != "values":
        return Attempt(_with_seconds(evident(found), clock), None)
    if hold is not None:
        hold(evident(found) | {"timing_notes": ["time ran out before anything was timed"]})
    try:
        timed = yield from _timing(order, source, machine, say, clock)
    except JudgeError as error:  # what was found of the values stands
        note = f"not timed, in phase {clock.phase}: {error.message}"[:1000]
        return Attempt(_with_seconds(evident(found), clock) | {"timing_notes": [note]}, None)
    made = _with_seconds(evident(_with_reasons(found, timed)), clock)
    rows = [block["telemetry"] for one in timed.timing for block in one["blocks"]]
    made |= evidence.plain(
        {
            "timing": list(timed.timing),
            "timing_notes": list(timed.notes),
            "telemetry": telemetry.worst(rows),
            "roofline": _essential(order),
            "samples_sha256": statistics.sha256(statistics.written(timed.samples)),
        }
    )
    return Attempt(made, timed.samples)


def _with_seconds(made: dict[str, Any], clock: Stopwatch) -> dict[str, Any]:
    return made | {"seconds": made["seconds"] | clock.seconds}


def _require_packages(language: str) -> None:
    """See that what a language is written with is here: that it is not says nothing of a candidate.

    Raises:
        JudgeError: It is not.
    """
    if language == "triton" and importlib.util.find_spec("triton") is None:
        raise JudgeError("it needs triton, which is not here", "pip install triton")


def _timing(
    order: Mapping[str, Any], source: bytes, machine: Machine, say: Say | None, watch: Stopwatch
) -> sessions.Steps:
    regimes, effort = order.get("regimes"), order.get("effort")
    return sessions.timing_steps(
        operators.load(order["operator"]), source, baselines=opponents(order["operator"], machine.device),
        workloads=[Workload(**one) for one in order["timed"]],
        regimes=None if regimes is None else [Regime(cache, launch) for cache, launch in regimes],
        effort=None if effort is None else Effort(**effort),
        device=machine.device, measured=machine.peaks, ceilings=machine.ceilings, progress=say,
        watch=watch,
    )  # fmt: skip


def _with_reasons(found: Report, timed: sessions.Timed) -> Report:
    """Add what spoke against a candidate while it was timed."""
    verdict = timed.verdict
    if not verdict.reasons and not verdict.review:
        return found
    word = verdict.word() if verdict.reasons or found.verdict == report.ACCEPTED else found.verdict
    reasons = tuple(dict.fromkeys((*verdict.reasons, *found.reasons, *verdict.review)))
    return replace(found, verdict=word, reasons=reasons, details=(*found.details, *verdict.details))


def opponents(operator: str, device: str) -> list[Baseline]:
    """Return the baselines of an operator that this device and these packages can run.

    Args:
        operator: Name of an operator of the family ``values``.
        device: ``cpu`` or ``cuda:N``. On a CPU nothing is compiled.
    """
    order = operators.load(operator).baselines
    able = [
        one
        for one in sorted(baselines.baselines(operator), key=lambda one: order.index(one.name))
        if (device != "cpu" or not (one.needs_cuda or one.compiled))
        and all(importlib.util.find_spec(package) for package in one.packages)
    ]
    return [_opponent(one) for one in able]


def _opponent(one: baselines.Baseline) -> Baseline:
    package = one.packages[0] if one.packages else "torch"
    return Baseline(
        name=one.describe,
        version=f"{package} {metadata.version(package)}",
        source=one.source,
        takes=lambda workload: one.takes(workload.axes, workload.dtype, law=workload.law),
    )


def _essential(order: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    operator = operators.load(order["operator"])
    rows = []
    for one in order["timed"]:
        cost = operator.cost(one["axes"], one["dtype"])
        asked = {name: one[name] for name in ("axes", "dtype", "law", "note")}
        rows.append({"workload": asked, "flops": cost.flops, "essential_bytes": cost.essential_bytes})
    return rows
