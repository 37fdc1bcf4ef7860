"""Predict entries on a target's device: reads records and cost models, and leaves the rest to pure functions."""

import importlib.util
from collections.abc import Iterable, Mapping
from typing import Any

from kb.config import Root
from kb.errors import EntryFormatError
from kb.models.documents import Target, TargetOperator
from kb.planning import Forecast, Known, Wish
from kb.planning.forecasting import forecast, heaviest, measured_of
from kb.planning.values import Wanted
from kb.prediction import Work
from kb.store import records


def forecasts_of(
    root: Root, entries: Iterable[Known], wish: Wish, target: Target
) -> tuple[dict[tuple[str, str], Forecast], list[str]]:
    """Predict every entry that was timed somewhere, on every operator row that it computes.

    Args:
        root: The knowledge base.
        entries: Of the store.
        wish: The target as planned.
        target: As it stands in its entry; its traffic completes the sizes of rows.

    Returns:
        Forecasts by entry id and name of the row, and notes. Nothing is loaded, and nothing said, where nothing was
        timed.
    """
    timed = [one for one in entries if one.kind == "kernel" and any(cell["figures"] for cell in one.cells)]
    rows = [row for row in wish.rows if any(one.operator == row.operator for one in timed)]
    if not rows:
        return {}, []
    if importlib.util.find_spec("torch") is None:
        return {}, ["no predictions: they need the operators' cost models, and torch is not installed"]
    stated = dict(zip((row.name for row in wish.rows), target.operators, strict=True))
    works = {row.name: _work(row, stated[row.name], target) for row in rows}
    found: dict[tuple[str, str], Forecast] = {}
    for entry in timed:
        measured = measured_of(entry, _records(root, entry))
        for row in rows:
            work = works[row.name]
            if row.operator == entry.operator and work is not None:
                found[entry.id, row.name] = forecast(measured, row, wish, *work)
    return found, []


def _records(root: Root, entry: Known) -> list[Mapping[str, Any]]:
    """Return the records that the entry's evidence rests on; the catalogue has checked them."""
    paths = dict.fromkeys(path for cell in entry.cells if cell["state"] == "holds" for path in cell["records"])
    found: list[Mapping[str, Any]] = []
    for path in paths:
        try:
            found.append(records.read_one(root.entries, entry.id, path.rsplit("/", 1)[-1]).raw)
        except EntryFormatError:
            continue  # it was changed since; the next indexing says so
    return found


def _work(row: Wanted, stated: TargetOperator, target: Target) -> tuple[Work, dict[str, int]] | None:
    """Return the work of one call of a row at all its axes, or None where an axis or the operator is not known."""
    from kb.service.targets import spec_cost

    model = spec_cost(row.operator)
    if model is None:
        return None
    size = heaviest(row)
    traffic = next((one for one in target.traffic if one.name == size.traffic), None)
    axes = dict(stated.axes) if traffic is None else stated.axes_under(traffic, model.axes)
    dtype = next((one for one in row.dtypes if one in model.dtypes), None)
    if dtype is None or any(axis not in axes for axis in model.axes):
        return None
    cost = model.work({axis: axes[axis] for axis in model.axes}, dtype)
    return Work(float(cost.flops), float(cost.moved_bytes), dtype), {axis: axes[axis] for axis in model.axes}
