"""The plan of an allocation judgement: which traces are asked, drawn after the candidate was loaded."""

import random
from collections.abc import Sequence

from kb.validators.operators.allocation import (
    DRAWN,
    FITTED,
    PERMUTED,
    SHIFTED,
    TIGHT,
    Allocation,
    BlockTrace,
    Trace,
)
from kb.validators.operators.spec import Workload
from kb.validators.runtime.plan import Case, Plan

_ASKED = {
    ("workspace_plan", "run"): (DRAWN, PERMUTED, SHIFTED),
    ("workspace_plan", "Allocator"): (DRAWN, PERMUTED, SHIFTED, TIGHT),
    ("workspace_plan", "DeviceAllocator"): (DRAWN, PERMUTED, TIGHT),
    ("kv_block_pool", "Pool"): (DRAWN, DRAWN),
    ("graph_pool", "run"): (DRAWN, DRAWN, TIGHT),
}
"""What is asked at each workload, by operator and form."""

_NOT_OFFLINE = frozenset({"two_streams"})
"""Laws whose order only an online strategy can be told."""

LARGE_KIB = 4096
"""``mean_kib`` from which blocks of a strategy's own memory stand out from what else a process does."""


def workloads_for(form: str, workloads: Sequence[Workload], laws: Sequence[str] | None) -> tuple[Workload, ...]:
    """Return what is asked of a candidate.

    Args:
        form: The form in which it comes.
        workloads: What the operator has.
        laws: The laws that the candidate says it serves; None for all.
    """
    kept = [one for one in workloads if laws is None or one.law in laws]
    if form == "run":
        kept = [one for one in kept if one.law not in _NOT_OFFLINE]
    if form == "DeviceAllocator":
        # On a CPU a process does much else; only large blocks stand out from it.
        large = [one for one in kept if one.use == "target" or one.axes.get("mean_kib", 0) >= LARGE_KIB]
        kept = [one for one in large if one.law not in _NOT_OFFLINE]
    return tuple(kept)


def draw(spec: Allocation, form: str, workloads: Sequence[Workload], *, master_seed: int, fitted: bool) -> Plan:
    """Draw a plan.

    Args:
        spec: The operator.
        form: The form in which the candidate comes.
        workloads: What is asked.
        master_seed: From the system's entropy, drawn after the candidate was loaded and frozen.
        fitted: Ask each drawn trace once more in no more memory than it took.

    Returns:
        A plan whose order, sizes and lifetimes nobody could have known before.
    """
    dice = random.Random(master_seed)  # noqa: S311 - the seed carries the entropy; the plan must be repeatable from it
    rows: list[tuple[int, str, int]] = []
    for which in range(len(workloads)):
        rows += [(which, contents, dice.getrandbits(62)) for contents in _ASKED[spec.name, form]]
    dice.shuffle(rows)
    turns = [0] * len(workloads)
    cases: list[Case] = []
    for which, contents, seed in rows:
        asked = [contents, FITTED] if fitted and contents == DRAWN and form == "Allocator" else [contents]
        for one in asked:
            cases.append(Case(len(cases), which, turns[which], seed, one, 0))
            turns[which] += 1
    return Plan(spec.name, tuple(workloads), tuple(cases))


def trace_of(spec: Allocation, workload: Workload, case: Case) -> Trace:
    """Return the trace of a case; the same seed gives the same trace."""
    dice = random.Random(case.seed)  # noqa: S311 - likewise
    trace = spec.laws[workload.law](workload.axes, dice)
    if isinstance(trace, BlockTrace) and case.contents == PERMUTED:
        return trace.permuted(dice)
    if isinstance(trace, BlockTrace) and case.contents == SHIFTED:
        return trace.shifted(dice)
    return trace
