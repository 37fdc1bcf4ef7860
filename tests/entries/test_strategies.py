"""Allocation entries keep their promises: live blocks never overlap, offsets are aligned, running out is clean."""

import importlib.util
import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ALLOCATION = Path(__file__).resolve().parents[2] / "entries" / "allocation"
MIB = 1 << 20

Planner = Callable[..., tuple[list[int], int]]
Server = Callable[..., list[list[int] | None]]


def load(name: str) -> ModuleType:
    """Import an entry's ``strategy.py`` under a private name."""
    private = "strategy_under_test_" + name.replace("/", "_").replace("-", "_")
    spec = importlib.util.spec_from_file_location(private, ALLOCATION / name / "strategy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[private] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


ARENA = load("workspace_plan/liveness-packed-arena")
EXPANDABLE = load("workspace_plan/expandable-segments")
RING = load("workspace_plan/pinned-staging-ring")
PAGED = load("kv_block_pool/paged-kv-cache")
UNIFIED = load("kv_block_pool/unified-kv-and-state-slots")
GRAPHS = load("graph_pool/bucketed-private-pools")

PLANNERS = [
    pytest.param(ARENA.run, id="arena"),
    pytest.param(EXPANDABLE.run, id="expandable"),
    pytest.param(EXPANDABLE.run_fixed_segments, id="fixed-segments"),
    pytest.param(RING.run, id="ring"),
]
POOLS = [pytest.param(PAGED.run, id="paged"), pytest.param(UNIFIED.run, id="unified")]

buffers = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 30), st.integers(0, 12)).map(lambda b: (b[0], b[1], b[1] + b[2])),
    max_size=25,
)
alignments = st.sampled_from([1, 16, 256, 512])


def columns(rows: Sequence[tuple[int, int, int]]) -> tuple[list[int], list[int], list[int]]:
    """Turn (size, first, last) rows into the three arguments of a planner."""
    return [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows]


@pytest.mark.parametrize("plan", PLANNERS)
@settings(max_examples=80, deadline=None)
@given(rows=buffers, alignment=alignments)
def test_live_buffers_never_overlap(plan: Planner, rows: list[tuple[int, int, int]], alignment: int) -> None:
    offsets, total = plan(*columns(rows), alignment)
    assert len(offsets) == len(rows)
    for offset, (size, _, _) in zip(offsets, rows, strict=True):
        assert offset >= 0
        assert offset % alignment == 0
        assert offset + size <= total or size == 0
    for (a, one), (b, other) in itertools.combinations(zip(offsets, rows, strict=True), 2):
        together = one[1] <= other[2] and other[1] <= one[2]
        apart = a + one[0] <= b or b + other[0] <= a
        assert apart or not together or not one[0] or not other[0]


@pytest.mark.parametrize("plan", PLANNERS)
@settings(max_examples=40, deadline=None)
@given(rows=buffers)
def test_no_plan_is_below_the_peak_of_live_bytes(plan: Planner, rows: list[tuple[int, int, int]]) -> None:
    assert plan(*columns(rows), 512)[1] >= ARENA.lower_bound(*columns(rows), 512)


@settings(max_examples=60, deadline=None)
@given(rows=buffers, alignment=alignments)
def test_an_arena_is_never_larger_than_no_reuse_at_all(rows: list[tuple[int, int, int]], alignment: int) -> None:
    padded = sum(-(-size // alignment) * alignment for size, _, _ in rows)
    assert ARENA.run(*columns(rows), alignment)[1] <= padded


def test_an_arena_reaches_the_bound_on_a_transformer_layer() -> None:
    tokens, kib = 64, 1024
    rows = [  # hidden, qkv, attention output, projection, gate-up, activation, down: a chain with one residual
        (tokens * 4 * kib, 0, 6),
        (tokens * 18 * kib, 0, 1),
        (tokens * 8 * kib, 1, 2),
        (tokens * 4 * kib, 2, 3),
        (tokens * 16 * kib, 3, 4),
        (tokens * 8 * kib, 4, 5),
        (tokens * 4 * kib, 5, 6),
    ]
    assert ARENA.run(*columns(rows))[1] == ARENA.lower_bound(*columns(rows)) == tokens * 30 * kib


def test_a_lower_bound_counts_lifetimes_as_closed() -> None:
    assert ARENA.lower_bound([512, 512], [0, 1], [1, 2]) == 1024
    assert ARENA.lower_bound([512, 512], [0, 2], [1, 3]) == 512
    assert ARENA.lower_bound([], [], []) == 0


@pytest.mark.parametrize("alignment", [0, -8, 3, 48])
@pytest.mark.parametrize("plan", PLANNERS)
def test_an_alignment_that_is_no_power_of_two_is_refused(plan: Planner, alignment: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        plan([1], [0], [0], alignment)


def test_the_arena_refuses_lifetimes_that_end_before_they_start() -> None:
    with pytest.raises(ValueError, match="lifetime"):
        ARENA.run([1], [2], [1])
    with pytest.raises(ValueError, match="equally long"):
        ARENA.run([1, 2], [0], [0])


def test_growing_in_place_serves_a_longer_request_from_the_free_tail() -> None:
    # Three prompts, each longer than the one before, one after the other.
    rows = [(20 * MIB, 0, 0), (30 * MIB, 1, 1), (40 * MIB, 2, 2)]
    assert EXPANDABLE.run(*columns(rows))[1] == 40 * MIB
    assert EXPANDABLE.run_fixed_segments(*columns(rows))[1] == 90 * MIB


def test_a_ring_waits_for_its_oldest_chunk() -> None:
    # The first chunk stays in flight, so the later ones cannot reuse one another's bytes.
    assert RING.run([256] * 4, [0, 1, 2, 3], [3, 1, 2, 3])[1] == 1024
    assert RING.run([256] * 4, [0, 1, 2, 3], [0, 1, 2, 3])[1] == 256


Events = list[tuple[Any, ...]]
KINDS = st.sampled_from(["kv", "state"])
events: st.SearchStrategy[Events] = st.lists(
    st.one_of(
        st.tuples(KINDS, st.integers(0, 6), st.integers(0, 9)),
        st.tuples(st.just("free"), st.integers(0, 6)),
    ),
    max_size=60,
)


@pytest.mark.parametrize("serve", POOLS)
@settings(max_examples=100, deadline=None)
@given(trace=events, capacity=st.integers(0, 4000), page=st.integers(1, 90), slot=st.integers(90, 500))
def test_live_blocks_of_a_pool_never_overlap(serve: Server, trace: Events, capacity: int, page: int, slot: int) -> None:
    # The trace has to be held as bytes with an owner: that shows an overlap whatever the pool believes.
    owner: dict[int, object] = {}
    held: dict[object, list[range]] = {}
    answers = serve(trace, capacity, page, slot)
    assert len(answers) == len(trace)
    for event, answer in zip(trace, answers, strict=True):
        if event[0] == "free":
            assert answer == []
            for block in held.pop(event[1], []):
                for byte in block:
                    del owner[byte]
            continue
        assert answer is None or len(answer) == event[2]
        for offset in answer or []:
            block = range(offset, offset + (page if event[0] == "kv" else slot))
            assert block.start >= 0
            assert block.stop <= capacity
            assert not any(byte in owner for byte in block)
            owner.update(dict.fromkeys(block, event[1]))
            held.setdefault(event[1], []).append(block)


@pytest.mark.parametrize("serve", POOLS)
def test_a_refused_request_takes_nothing(serve: Server) -> None:
    trace = [("kv", "a", 8), ("kv", "b", 1000), ("kv", "b", 8), ("free", "a"), ("kv", "c", 8)]
    answers = serve(trace, 16 * 64, 64, 0)
    assert answers[1] is None
    assert None not in (answers[0], answers[2], answers[4])


@pytest.mark.parametrize("serve", POOLS)
def test_freeing_everything_gives_the_whole_pool_back(serve: Server) -> None:
    trace: Events = [("kv", i, 2) for i in range(8)] + [("free", i) for i in range(8)] + [("kv", "all", 16)]
    assert serve(trace, 16 * 64, 64, 0)[-1] is not None


@pytest.mark.parametrize("serve", POOLS)
def test_an_unknown_event_and_a_negative_count_are_refused(serve: Server) -> None:
    with pytest.raises(ValueError, match="unknown event"):
        serve([("tensor", 1, 1)], 1024, 64, 64)
    with pytest.raises(ValueError, match="negative"):
        serve([("kv", 1, -1)], 1024, 64, 64)


def test_a_shared_prefix_is_freed_with_its_last_reader() -> None:
    pool = PAGED.PagePool(10 * 64, 64)
    pages = pool.take("owner", 4)
    assert pool.share("owner", "reader", 3) == pages[:3]
    assert pool.release("owner") == 1
    assert len(pool.free_pages) == 7
    assert pool.release("reader") == 3
    assert sorted(pool.free_pages) == [i * 64 for i in range(10)]


def test_one_pool_serves_mixes_that_a_fixed_split_refuses() -> None:
    page, slot = 163_840, 64_389_120  # 16 fp8 tokens and one sequence's state of Qwen3.6-35B-A3B
    assert slot % page == 0
    capacity = 32 * slot
    short = [("state", i, 1) for i in range(31)] + [("kv", i, 4) for i in range(31)]
    long = [("state", 0, 1), ("kv", 0, 31 * (slot // page))]
    for trace in (short, long):
        assert None not in UNIFIED.run(trace, capacity, page, slot)
        assert None in PAGED.run(trace, capacity, page, slot)


def test_a_slab_of_pages_becomes_a_slot_again() -> None:
    pool = UNIFIED.SlabPool(4 * 400, 100, 400)
    assert pool.take("kv", "a", 16) is not None
    assert pool.take("state", "b", 1) is None
    pool.release("a")
    assert pool.available("state") == 4
    assert sorted(pool.take("state", "b", 4) or []) == [0, 400, 800, 1200]


@settings(max_examples=60, deadline=None)
@given(
    histogram=st.dictionaries(st.integers(1, 40), st.integers(0, 50), max_size=8),
    graphs=st.integers(1, 5),
)
def test_buckets_waste_the_fewest_rows_that_the_budget_allows(histogram: dict[int, int], graphs: int) -> None:
    plan = GRAPHS.run(histogram, 40, 10, 100, 400 + graphs * 100)
    assert plan.pool_bytes <= 400 + graphs * 100
    assert plan.buckets[-1] == 40
    assert list(plan.buckets) == sorted(set(plan.buckets))
    assert plan.padded_rows == padding(histogram, plan.buckets)
    sizes = sorted(set(histogram) - {40})
    best = min(padding(histogram, (*chosen, 40)) for k in range(graphs) for chosen in itertools.combinations(sizes, k))
    assert plan.padded_rows == best


def padding(histogram: dict[int, int], buckets: Sequence[int]) -> int:
    """Count the rows computed in vain, the obvious way."""
    return sum(count * (min(b for b in buckets if b >= size) - size) for size, count in histogram.items())


def test_a_budget_below_one_graph_is_refused_and_a_large_batch_runs_eagerly() -> None:
    with pytest.raises(MemoryError, match="needs 500 of 499"):
        GRAPHS.run({}, 40, 10, 100, 499)
    assert GRAPHS.bucket_for(3, (1, 4, 8)) == 4
    assert GRAPHS.bucket_for(9, (1, 4, 8)) is None
