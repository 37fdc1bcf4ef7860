"""What of an allocation record follows from the rest of it: plan, traces, lower bounds and figures computed again."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kb.models.record import Record

_CLOSE = 1e-9


def memory_faults(record: Record, workloads: Sequence[Any]) -> Iterator[str]:
    """Draw plan and traces again from the revealed seed, and hold cases and figures against them.

    Args:
        record: Of the family ``allocation``.
        workloads: Those of the operator that were admitted, in its order.

    Yields:
        What does not agree, in words.
    """
    from kb.validators.operators import load_allocation
    from kb.validators.runtime.allocation import drawing
    from kb.validators.runtime.allocation.summing import summary

    figures = record.memory.figures if record.memory is not None else None
    if not record.master_seed or not figures or not figures.get("form"):
        yield "it reveals no seed, or has no figures"
        return
    spec, form = load_allocation(record.operator.name), str(figures["form"])
    if form not in {one.name for one in spec.forms}:
        yield f"there is no form {form[:80]}"
        return
    kept = drawing.workloads_for(form, workloads, figures.get("laws"))
    fitted = record.device.get("arch") != "cpu"
    drawn = drawing.draw(spec, form, kept, master_seed=int(record.master_seed, 16), fitted=fitted)
    if drawn.sha256 != record.plan_sha256:
        yield "its seed does not give its plan"
        return
    made = [(dict(one.axes), one.law, one.contents) for one in record.cases]
    asked = [(dict(kept[one.workload].axes), kept[one.workload].law, one.contents) for one in drawn.cases]
    if made != asked[: len(made)] or (record.decision.verdict == "accepted" and len(made) != len(asked)):
        yield "its cases are not those of its plan"
        return
    if record.decision.verdict == "accepted":
        traces = list(figures.get("traces") or ())
        if len(traces) != len(drawn.cases):
            yield f"figures of {len(traces)} traces, and {len(drawn.cases)} were asked"
            return
        for number, (row, case) in enumerate(zip(traces, drawn.cases, strict=True)):
            trace = drawing.trace_of(spec, kept[case.workload], case)
            yield from (f"trace {number}: {fault}" for fault in _trace_faults(row, trace))
    again = summary(form, figures.get("laws"), list(figures.get("traces") or ()))
    if any(not _same(figures.get(name), value) for name, value in again.items()):
        yield "its figures do not follow from its traces"


def _trace_faults(row: Mapping[str, Any], trace: Any) -> Iterator[str]:  # noqa: ANN401 - one of several kinds
    live, peak = row.get("live_bytes"), row.get("peak_bytes")
    if live is None or peak is None:
        return
    if not _same(row.get("fragmentation"), peak / live if live else None):
        yield "its fragmentation is not its peak over its live bytes"
    if "alignment" in row and hasattr(trace, "live_peak") and trace.live_peak(row["alignment"]) != live:
        yield "its live bytes are not those of its trace"
    if hasattr(trace, "least_bytes") and peak > trace.budget_bytes:
        yield "its peak is above the budget of its trace"


def _same(first: object, second: object) -> bool:
    if isinstance(first, float) and isinstance(second, (int, float)):
        return math.isclose(first, second, rel_tol=_CLOSE)
    return first == second
