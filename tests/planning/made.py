"""Entries and targets to plan with, as plain values."""

from collections.abc import Mapping, Sequence
from typing import Any

from kb import hardware
from kb.evidence import Today
from kb.models.plan import Plan
from kb.planning import Forecast, Known, Size, Tally, Wanted, Wish, make_plan
from kb.transfer import facts_of


def entry(entry_id: str, *, tally: Tally | None = None, cells: Sequence[Mapping[str, Any]] = (), **raw: Any) -> Known:  # noqa: ANN401
    """Return an entry; facts not given are those of a Triton kernel of the topic's operator on Hopper."""
    kind, topic, _ = entry_id.split("/")
    coded = kind in ("kernel", "allocation", "comm")
    facts: dict[str, Any] = {"outcome": "works", "license": "Apache-2.0", "operator": topic if coded else None}
    if kind == "kernel":
        facts |= {"language": "triton", "dtypes": ["bfloat16"], "requires": {"arch": ["sm_90"]}}
    elif coded:
        facts |= {"language": "python"}
    facts |= {"entry_point": "kernel.py:run"} if coded else {}
    facts |= raw
    operators = dict.fromkeys([*([facts["operator"]] if facts["operator"] else []), *facts.get("applies_to", ())])
    return Known(
        id=entry_id, version=1, digest="d" * 64, title=entry_id, summary="What is special about it.",
        outcome=facts["outcome"], license=facts["license"], operator=facts["operator"], operators=tuple(operators),
        facts=facts_of(entry_id, facts), raw=facts, cells=tuple(cells), withdrawn=facts.get("withdrawn"),
        tally=tally or Tally(),
    )  # fmt: skip


def row(
    name: str,
    operator: str,
    share: float | None = 0.1,
    *,
    phase: str | None = "vision",
    dtypes: tuple[str, ...] = ("bfloat16",),
    **axes: int,
) -> Wanted:
    """Return an operator row under one traffic."""
    origin = None if share is None else "measured"
    return Wanted(name, operator, dtypes, (Size("image", 1.0, axes),), share, origin, 1.0, phase)


def wish(*rows: Wanted, device: str = "H100-SXM", count: int = 1, use: str = "commercial", **more: Any) -> Wish:  # noqa: ANN401
    """Return a target of these rows."""
    phases = frozenset(one.phase for one in rows if one.phase)
    return Wish(
        "target/m/x", 1, "A target", "m", "bf16", hardware.resolve(device), count, rows, phases, use=use, **more
    )  # fmt: skip


def plan_of(
    entries: Sequence[Known], wanted: Wish, forecasts: Mapping[tuple[str, str], Forecast] | None = None
) -> Plan:
    """Plan with nothing to hold evidence against."""
    return make_plan(entries, wanted, today=Today(), forecasts=forecasts)


def ids(plan: Plan) -> list[str]:
    """Return the ids of the order of work."""
    return [one.id for one in plan.rows]
