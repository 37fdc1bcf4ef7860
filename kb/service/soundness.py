"""What of a record follows from the rest of it: plan, cases, verdict, times and hardware are computed again.

``kb verify`` asks it of what is filed, ``kb accept`` before anything is filed.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kb import hardware
from kb.errors import DeviceUnavailableError
from kb.hardware import Device
from kb.models.record import Record, decided
from kb.service import ceilings, strategies

if TYPE_CHECKING:
    from kb.validators.runtime.plan import Plan

Plain = Mapping[str, Any]

_MOST_SHAPES = 4
"""Of a target in one quick timing, as far as plans are drawn again."""


def decision_faults(record: Record) -> Iterator[str]:
    """Say whether the verdict does not follow from the cases and the reasons."""
    if decided(record) != record.decision.verdict:
        yield f"its cases give {decided(record)}, not {record.decision.verdict}"


def model_faults(record: Record) -> Iterator[str]:
    """Compute the limits of a whole model again, and whether its distances are within them."""
    if record.operator.family != "model" or record.model is None or "found" not in record.model:
        return
    from kb.validators.model import limits

    try:
        again = limits.admitted(record.model["noise"], record.model["budget"])
        over = limits.exceeded(record.model["found"], again)
    except (KeyError, TypeError):
        yield "its figures of a model are none that limits can be computed from"
        return
    if again != record.model.get("limits"):
        yield "its noise and budget do not give its limits"
    if over and record.decision.verdict == "accepted":
        yield f"it was accepted with {over[0]} above its limit"


def plan_faults(record: Record, workloads: Sequence[Any]) -> Iterator[str]:
    """Draw the plan again from the revealed seed, and hold the cases against it.

    Args:
        record: Of the family ``values``, ``allocation`` or ``comm``.
        workloads: Those of the operator that were admitted, in its order.
    """
    if record.operator.family == "allocation":
        yield from strategies.memory_faults(record, workloads)
        return
    if not record.master_seed:
        yield "it reveals no seed"
        return
    drawn = _drawn_again(record, workloads)
    if drawn is None:
        yield "its seed does not give its plan"
        return
    asked = [(case, drawn.workloads[case.workload]) for case in drawn.cases]
    for number, (made, (case, workload)) in enumerate(zip(record.cases, asked, strict=False)):
        if (made.axes, made.dtype, made.law, made.contents) != (
            dict(workload.axes), workload.dtype, workload.law, case.contents,
        ):  # fmt: skip
            yield f"case {number} is not the one that its plan asks for"
            return
    if record.decision.verdict == "accepted" and len(record.cases) != len(asked):
        yield f"it was accepted after {len(record.cases)} of {len(asked)} cases"


def _drawn_again(record: Record, workloads: Sequence[Any]) -> "Plan | None":
    """Return the plan that a record's digest names; None if its seed gives none such.

    A quick timing judges one or some of the target's workloads beside all awkward ones: each may be among them, and the
    digest tells which they were.
    """
    from kb.validators.runtime import plan

    low, high = record.plan.calls
    seed = int(record.master_seed or "0", 16)
    targets = [one for one in workloads if one.use == "target"] if record.operator.family == "values" else []
    chosen = itertools.chain.from_iterable(
        itertools.combinations(targets, count) for count in range(1, min(len(targets), _MOST_SHAPES + 1))
    )
    some = ([one for one in workloads if one.use != "target" or any(one is kept for kept in few)] for few in chosen)
    for asked in itertools.chain((workloads,), some):
        drawn = plan.draw(record.operator.name, asked, master_seed=seed, calls=(low, high))
        if drawn.sha256 == record.plan_sha256:
            return drawn
    return None


def timing_faults(record: Record, samples: bytes | None) -> Iterator[str]:
    """Compute every figure of the timing again from the samples.

    Args:
        record: Any.
        samples: Bytes of the side file; None if there is none.
    """
    if record.samples_sha256 is None:
        if record.timing and record.operator.family == "values":
            yield "its times have no samples"
        return
    if samples is None:
        yield "its samples are missing"
        return
    from kb.validators.runtime import statistics

    try:
        again = statistics.recompute(json.loads(samples))
    except (KeyError, TypeError, ValueError, ZeroDivisionError, IndexError) as error:
        yield f"its samples are none that times can be computed from: {type(error).__name__}"
        return
    stated = [one.model_dump(mode="json") for one in record.timing or ()]
    if len(again) != len(stated):
        yield f"its samples give {len(again)} timings, not {len(stated)}"
        return
    for number, (one, other) in enumerate(zip(again, stated, strict=True)):
        for name in sorted(one.keys() | other.keys()):
            if json.loads(json.dumps(one.get(name))) != other.get(name):
                yield f"timing {number}: its samples do not give its {name}"


def device_faults(facts: Plain) -> Iterator[str]:
    """Say what the measured machine contradicts of the device that a record names.

    Args:
        facts: ``device`` of the record. One that the hardware table does not know is not held against anything.
    """
    if facts["arch"] == "cpu":
        if facts["name"] != "cpu":
            yield f"a cpu is not called {facts['name']}"
        return
    try:
        members = hardware.resolve(facts["name"]).members
    except DeviceUnavailableError:
        return
    found = [list(_member_faults(facts, member)) for member in members]
    if all(found):
        yield from min(found, key=len)


def _member_faults(facts: Plain, member: Device) -> Iterator[str]:
    if facts["arch"] != member.arch:
        yield f"{facts['name']} is {member.arch}, not {facts['arch']}"
        return
    capability = str(facts.get("capability") or "")
    if capability and f"sm_{capability.replace('.', '')}" != member.arch:
        yield f"{facts['name']} is {member.arch}, and its driver says {capability}"
    sms, memory = member.value("sms"), member.value("mem_gb")
    if sms and facts.get("sms") and facts["sms"] != int(sms):
        yield f"{facts['name']} has {sms:g} SMs, not {facts['sms']}"
    if memory and facts.get("memory_bytes") and not 0.85 <= facts["memory_bytes"] / (memory * 1e9) <= 1.1:
        yield f"{facts['name']} has {memory:g} GB, not {facts['memory_bytes'] / 1e9:.0f}"
    if facts.get("peaks"):
        from kb.validators.runtime import peaks

        yield from peaks.plausible(facts["peaks"], ceilings.claimed(member))
