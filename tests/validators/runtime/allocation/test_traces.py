"""Traces: drawn anew each time, repeatable from a seed, with a lower bound that nothing can beat."""

import itertools
import random
from typing import Any

import pytest

from kb.validators import operators
from kb.validators.operators.allocation import DRAWN, Block, BlockTrace, GraphTask, ServingTrace
from kb.validators.operators.steps import Recorder, decoder_step
from kb.validators.runtime.allocation import drawing

EVERY = [
    pytest.param(spec, workload, id=f"{spec.name}-{workload.law}-{workload.use}-{number}")
    for spec in map(operators.load_allocation, operators.ALLOCATION)
    for number, workload in enumerate(spec.workloads)
]


def dice(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - a trace


@pytest.mark.parametrize(("spec", "workload"), EVERY)
def test_a_trace_follows_from_its_seed_and_changes_with_it(spec: Any, workload: Any) -> None:  # noqa: ANN401
    law = spec.laws[workload.law]
    assert law(workload.axes, dice(1)) == law(workload.axes, dice(1))
    assert len({str(law(workload.axes, dice(seed))) for seed in range(4)}) > 1


@pytest.mark.parametrize("name", operators.ALLOCATION)
def test_every_law_is_asked_for_on_a_cpu_and_every_axis_is_named(name: str) -> None:
    spec = operators.load_allocation(name)
    assert {w.law for w in spec.workloads if w.use == "awkward"} == set(spec.laws)
    assert {axis for w in spec.workloads for axis in w.axes} == set(spec.axes)
    assert all(law.__doc__ for law in spec.laws.values())


def test_events_free_a_block_after_the_allocations_of_its_last_step() -> None:
    trace = BlockTrace((Block(10, 0, 1), Block(20, 1, 1), Block(5, 2, 3)), waits=((1, 1, 0),))
    assert list(trace.events()) == [
        ("alloc", 0, 0), ("wait", 1, 0), ("alloc", 1, 0), ("free", 0, 0), ("free", 1, 0), ("alloc", 2, 0),
        ("free", 2, 0),
    ]  # fmt: skip
    assert (trace.live_peak(), trace.live_peak(16), trace.total(16)) == (30, 48, 64)


def test_permuting_keeps_lifetimes_and_shifting_keeps_sizes() -> None:
    spec = operators.load_allocation("workspace_plan")
    trace = spec.laws["random_sizes"]({"blocks": 60, "mean_kib": 8, "least_life": 1}, dice(3))
    assert isinstance(trace, BlockTrace)
    permuted, shifted = trace.permuted(dice(4)), trace.shifted(dice(4))
    assert [(b.first, b.last) for b in permuted.blocks] == [(b.first, b.last) for b in trace.blocks]
    assert [b.size for b in permuted.blocks] != [b.size for b in trace.blocks]
    assert [b.size for b in shifted.blocks] == [b.size for b in trace.blocks]
    assert sorted(b.last - b.first for b in shifted.blocks) == sorted(b.last - b.first for b in trace.blocks)
    ring = spec.laws["staging"]({"steps": 9, "chunks": 3}, dice(3))
    assert isinstance(ring, BlockTrace)
    ends = [block.last for block in ring.shifted(dice(4)).blocks]
    assert ends == sorted(ends)


def test_a_decode_step_has_the_blocks_of_its_model() -> None:
    record = Recorder()
    decoder_step(record, tokens=7, layers=4, sampled=7)
    sizes = [block.size for block in record.blocks()]
    assert sizes.count(7 * 2 * 12_288) == 3  # three Gated DeltaNet layers: qkv and z in one projection
    assert sizes.count(7 * 2 * 9_216) == 1  # one attention layer: q with its gate, k and v
    # Gate and up of eight experts a token in each layer; the convolution's output happens to be as large.
    assert sizes.count(7 * 8 * 2 * 1024) == 4 + 3
    assert sizes.count(7 * 248_320 * 4) >= 2  # logits and probabilities
    residual = record.blocks()[0]
    assert residual.size == 7 * 2 * 2048
    assert residual.last > record.now - 8  # it lives until the head


def test_a_plan_is_shuffled_and_repeatable_and_asks_too_little_memory_of_online_strategies() -> None:
    spec = operators.load_allocation("workspace_plan")
    awkward = [one for one in spec.workloads if one.use == "awkward"]
    kept = drawing.workloads_for("Allocator", awkward, None)
    plan = drawing.draw(spec, "Allocator", kept, master_seed=5, fitted=False)
    assert plan.sha256 == drawing.draw(spec, "Allocator", kept, master_seed=5, fitted=False).sha256
    assert plan.sha256 != drawing.draw(spec, "Allocator", kept, master_seed=6, fitted=False).sha256
    asked = {(case.workload, case.contents) for case in plan.cases}
    assert asked == {(n, contents) for n in range(len(kept)) for contents in ("drawn", "permuted", "shifted", "tight")}
    assert [case.workload for case in plan.cases] != sorted(case.workload for case in plan.cases)
    fitted = drawing.draw(spec, "Allocator", kept, master_seed=5, fitted=True).cases
    for before, case in itertools.pairwise(fitted):
        if case.contents == "fitted":
            assert (before.contents, before.seed) == (DRAWN, case.seed)


def test_a_planner_is_not_asked_for_what_only_an_online_strategy_can_be_told() -> None:
    spec = operators.load_allocation("workspace_plan")
    laws = {one.law for one in drawing.workloads_for("run", spec.workloads, None)}
    assert set(spec.laws) - laws == {"two_streams"}
    assert {one.law for one in drawing.workloads_for("run", spec.workloads, ["staging"])} == {"staging"}
    own = drawing.workloads_for("DeviceAllocator", [w for w in spec.workloads if w.use == "awkward"], None)
    assert all(one.axes["mean_kib"] >= drawing.LARGE_KIB for one in own)


def test_every_serving_trace_can_be_served_and_every_task_fits() -> None:
    for seed in range(20):
        for workload in operators.load_allocation("kv_block_pool").workloads:
            trace = operators.load_allocation("kv_block_pool").laws[workload.law](workload.axes, dice(seed))
            assert isinstance(trace, ServingTrace)
            for one in trace.requests:
                assert one.prompt + one.output <= trace.max_tokens
            assert trace.max_tokens * trace.token_bytes + trace.slot_bytes <= trace.capacity_bytes
            assert trace.token_bytes % 16 == trace.slot_bytes % 16 == 0
        for workload in operators.load_allocation("graph_pool").workloads:
            task = operators.load_allocation("graph_pool").laws[workload.law](workload.axes, dice(seed))
            assert isinstance(task, GraphTask)
            assert task.budget_bytes >= task.least_bytes()
            assert max(max(one) for one in task.histograms) <= task.max_batch
