"""In which order a bundle takes its entries: what a time limit cuts off should be what is missed least."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from kb.config import Root
from kb.errors import KbError
from kb.models.documents import TargetOperator
from kb.store import files, layout

_HEAVY_BYTES = 1_000_000_000
"""Entries with a workload that moves at least so much come last: its contents take longer to draw than to time."""


def shares(root: Root) -> dict[str, float]:
    """Return each operator's share of the time of all targets, 0 to the number of targets; estimated ones count."""
    found: dict[str, float] = defaultdict(float)
    for entry_id in layout.entry_ids(root.entries):
        if entry_id.startswith("target/"):
            for row in _rows(root, entry_id):
                found[row.operator] += row.share or 0.0
    return dict(found)


def _rows(root: Root, entry_id: str) -> Sequence[TargetOperator]:
    try:
        target = files.read(layout.folder_of(root.entries, entry_id), entry_id).file.target
    except KbError:  # kb check says what is wrong with it
        return ()
    return () if target is None else target.operators


def in_order(rows: Sequence[dict[str, Any]], share: Mapping[str, float]) -> list[dict[str, Any]]:
    """Order the rows of a bundle: one entry of every operator first, the operators of most time before others.

    Args:
        rows: With ``id``, ``operator`` and ``workloads``, as ``orders.order_of`` makes them.
        share: What ``shares`` returned.
    """
    turn: dict[str, int] = defaultdict(int)
    keyed = []
    for heavy, _, row in sorted(((_heavy(one), str(one["id"]), one) for one in rows), key=lambda one: one[:2]):
        operator = str(row["operator"])
        keyed.append(((heavy, turn[operator], -share.get(operator, 0.0), str(row["id"])), row))
        turn[operator] += 1
    return [row for _, row in sorted(keyed, key=lambda pair: pair[0])]


def _heavy(row: Mapping[str, Any]) -> bool:
    from kb.validators import operators

    if row["operator"] not in operators.VALUES:  # traces and ranks have no cost that drawing would take
        return False
    spec = operators.load(str(row["operator"]))
    return any(spec.cost(one["axes"], one["dtype"]).essential_bytes >= _HEAVY_BYTES for one in row["workloads"])
