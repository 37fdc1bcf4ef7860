"""What the judge is asked about an entry: which workloads are judged, and which are timed."""

from typing import Any

import pytest

from kb.config import starter
from kb.service import orders
from kb.store import files, layout
from kb.validators import operators


def order(name: str, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - keyword arguments
    root = starter()
    stored = files.read(layout.folder_of(root.entries, name), name)
    return orders.order_of(stored, uses=orders.USES, timed_on="cuda", **changes)


@pytest.mark.parametrize("name", ["kernel/rmsnorm/row-per-cta", "kernel/silu_and_mul/flat-vectorised"])
def test_a_quick_order_judges_what_it_times_and_everything_awkward_and_no_other_shape_of_a_target(name: str) -> None:
    quick, whole = order(name, quick=True), order(name)
    assert len(quick["timed"]) == 1
    assert quick["timed"][0] in whole["timed"]
    assert [one for one in quick["workloads"] if one["use"] == "target"] == quick["timed"]
    awkward = [one for one in whole["workloads"] if one["use"] == "awkward"]
    assert [one for one in quick["workloads"] if one["use"] == "awkward"] == awkward
    assert len(whole["workloads"]) > len(quick["workloads"])


@pytest.mark.parametrize("name", ["kernel/rmsnorm/row-per-cta", "kernel/silu_and_mul/flat-vectorised"])
def test_a_quick_order_times_a_large_shape_that_is_quickly_measured(name: str) -> None:
    quick = order(name, quick=True)
    spec = operators.load(quick["operator"])
    (timed,) = quick["timed"]
    moved = spec.cost(timed["axes"], timed["dtype"]).essential_bytes
    assert 20_000_000 < moved <= 140_000_000
    assert quick["effort"]["confirm"] is False


@pytest.mark.parametrize("name", ["kernel/rmsnorm/row-per-cta", "kernel/gemm/grouped-tile-order"])
def test_several_shapes_are_the_longest_the_shortest_and_an_awkward_one(name: str) -> None:
    (largest,) = order(name, quick=True)["timed"]
    several = order(name, quick=True, shapes=2)
    spec = operators.load(several["operator"])
    moved = [spec.cost(one["axes"], one["dtype"]).essential_bytes for one in several["timed"]]
    assert [one["use"] for one in several["timed"]] == ["target", "target", "awkward"]
    assert several["timed"][0] == largest
    assert moved[1] == min(spec.cost(one["axes"], one["dtype"]).essential_bytes for one in order(name)["timed"]), (
        "the shortest"
    )
    assert [one for one in several["workloads"] if one["use"] == "target"] == sorted(
        several["timed"][:2], key=order(name)["workloads"].index
    )
    assert len({str(one["axes"]) for one in order(name, quick=True, shapes=4)["timed"]}) == 5


def test_more_shapes_than_there_are_is_all_that_are_quickly_measured() -> None:
    name = "kernel/rmsnorm/row-per-cta"
    many = order(name, quick=True, shapes=99)["timed"]
    assert [one["use"] for one in many[-1:]] == ["awkward"]
    assert all(one in order(name)["timed"] for one in many[:-1])
    assert len({str(one) for one in many}) == len(many)


def test_an_order_without_times_times_nothing_and_leaves_no_workload_out() -> None:
    root = starter()
    name = "kernel/rmsnorm/row-per-cta"
    stored = files.read(layout.folder_of(root.entries, name), name)
    made = orders.order_of(stored, uses=orders.USES, quick=True)
    assert made["timed"] == []
    assert made["workloads"] == order(name)["workloads"]
