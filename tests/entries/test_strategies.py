"""Allocation entries keep their promises: live blocks never overlap, offsets are aligned, running out is clean."""

import importlib.util
import itertools
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kb.validators import operators
from kb.validators.operators.allocation import Block, BlockTrace, GraphTask, ServingTrace
from kb.validators.operators.spec import Workload
from kb.validators.runtime.allocation import graphs
from kb.validators.runtime.allocation.baselines import LocalPool
from kb.validators.runtime.allocation.drawing import workloads_for
from kb.validators.runtime.allocation.ledger import Ledger
from kb.validators.runtime.allocation.pages import Serving, room_for
from kb.validators.runtime.allocation.stores import UNIT, Data, Numbers

ALLOCATION = Path(__file__).resolve().parents[2] / "entries" / "allocation"
MIB = 1 << 20

Planner = Callable[..., tuple[list[int], int]]


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


EVERY = {name: load(name) for name in sorted(f"{one.parts[-3]}/{one.parts[-2]}" for one in ALLOCATION.glob("*/*/*.py"))}
ARENA, PORTFOLIO = (EVERY[f"workspace_plan/{name}"] for name in ("liveness-packed-arena", "order-portfolio"))
EXPANDABLE = EVERY["workspace_plan/expandable-segments"]
PAGED, UNIFIED, PREFIX = (
    EVERY[f"kv_block_pool/{name}"]
    for name in ("paged-kv-cache", "unified-kv-and-state-slots", "prefix-sharing-copy-on-write")
)
GRAPHS = EVERY["graph_pool/bucketed-private-pools"]

PLANNERS = [pytest.param(ARENA.run, id="arena"), pytest.param(PORTFOLIO.run, id="portfolio")]
ONLINE = {name: module for name, module in EVERY.items() if "Allocator" in vars(module)}
POOLS = {name: module for name, module in EVERY.items() if "Pool" in vars(module)}

buffers = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 30), st.integers(0, 12)).map(lambda b: (b[0], b[1], b[1] + b[2])),
    max_size=25,
)
alignments = st.sampled_from([1, 16, 256, 512])


def columns(rows: Sequence[tuple[int, int, int]]) -> tuple[list[int], list[int], list[int]]:
    """Turn (size, first, last) rows into the three arguments of a planner."""
    return [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows]


def asked(operator: str, module: ModuleType, form: str) -> Iterator[tuple[Workload, Any]]:
    """Yield a drawn trace of every awkward workload that a strategy says it serves."""
    spec = operators.load_allocation(operator)
    awkward = [one for one in spec.workloads if one.use == "awkward"]
    for number, workload in enumerate(workloads_for(form, awkward, getattr(module, "LAWS", None))):
        yield workload, spec.laws[workload.law](workload.axes, random.Random(number))  # noqa: S311 - a trace


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
    total, least = plan(*columns(rows), 512)[1], ARENA.lower_bound(*columns(rows), 512)
    assert least <= total <= sum(-(-size // 512) * 512 for size, _, _ in rows)


@pytest.mark.parametrize("plan", PLANNERS)
def test_a_plan_reaches_the_bound_on_a_transformer_layer(plan: Planner) -> None:
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
    assert plan(*columns(rows))[1] == ARENA.lower_bound(*columns(rows)) == tokens * 30 * kib


def test_a_lower_bound_counts_lifetimes_as_closed() -> None:
    assert ARENA.lower_bound([512, 512], [0, 1], [1, 2]) == 1024
    assert ARENA.lower_bound([512, 512], [0, 2], [1, 3]) == 512
    assert ARENA.lower_bound([], [], []) == 0


@pytest.mark.parametrize("alignment", [0, -8, 3, 48])
def test_an_alignment_that_is_no_power_of_two_is_refused(alignment: int) -> None:
    for planner in (ARENA, PORTFOLIO):
        with pytest.raises(ValueError, match="power of two"):
            planner.run([1], [0], [0], alignment)
    for module in ONLINE.values():
        with pytest.raises(ValueError, match="power of two"):
            module.Allocator(1024, alignment)


def test_a_planner_refuses_lifetimes_that_end_before_they_start() -> None:
    for planner in (ARENA, PORTFOLIO):
        with pytest.raises(ValueError, match="lifetime"):
            planner.run([1], [2], [1])
    with pytest.raises(ValueError, match="equally long"):
        ARENA.run([1, 2], [0], [0])


def replayed(strategy: Any, trace: BlockTrace, capacity: int, alignment: int) -> tuple[Ledger, int]:  # noqa: ANN401
    """Serve a trace, with the judge's books; returns them and the number of refused blocks."""
    ledger = Ledger(capacity, alignment, 1 + max(max(b.stream, b.user) for b in trace.blocks))
    given: dict[int, int] = {}
    refused = 0
    for kind, first, second in trace.events():
        if kind == "wait":
            strategy.wait(first, second)
            ledger.wait(first, second)
        elif kind == "alloc":
            block = trace.blocks[first]
            try:
                given[first] = strategy.alloc(block.size, block.stream)
            except MemoryError:
                refused += 1
                continue
            assert ledger.place(first, given[first], block.size, block.stream) is None
        elif first in given:
            ledger.free(first, trace.blocks[first].user)
            strategy.free(given.pop(first), trace.blocks[first].user)
    return ledger, refused


@pytest.mark.parametrize("name", ONLINE)
def test_an_online_strategy_serves_its_traces_and_survives_running_out(name: str) -> None:
    module = ONLINE[name]
    for workload, drawn in asked("workspace_plan", module, "Allocator"):
        dice = random.Random(workload.law)  # noqa: S311 - a trace
        for trace in (drawn, drawn.permuted(dice), drawn.shifted(dice)):
            bound = trace.live_peak(256)
            ledger, refused = replayed(module.Allocator(8 * bound + 32 * MIB, 256), trace, 8 * bound + 32 * MIB, 256)
            assert not refused
            assert ledger.touched_bytes() >= bound
            tight = bound * 2 // 3 // 256 * 256
            strategy = module.Allocator(tight, 256)
            _, refused = replayed(strategy, trace, tight, 256)
            assert refused
            for other in range(1, 1 + max(b.user for b in trace.blocks)):
                strategy.wait(0, other)
            fresh = module.Allocator(tight, 256)
            for size in (256, tight // 2 // 256 * 256):  # after all is freed, what was there at first is there again
                assert served(fresh, size) == served(strategy, size)


def served(strategy: Any, size: int) -> bool:  # noqa: ANN401 - of some entry
    """Tell whether a block is to be had, and give it back."""
    try:
        strategy.free(strategy.alloc(size, 0), 0)
    except MemoryError:
        return False
    return True


def test_growing_in_place_serves_a_longer_request_from_the_free_tail() -> None:
    # Three prompts, each longer than the one before, one after the other.
    trace = BlockTrace((Block(20 * MIB, 0, 0), Block(30 * MIB, 1, 1), Block(40 * MIB, 2, 2)))
    grown, segments = EXPANDABLE.Allocator(1 << 40, 512), EXPANDABLE.FixedSegments(1 << 40, 512)
    replayed(grown, trace, 1 << 40, 512)
    replayed(segments, trace, 1 << 40, 512)
    assert grown.mapped_bytes() == 40 * MIB
    assert segments.high == 90 * MIB


def test_a_ring_waits_for_its_oldest_chunk_and_wraps_as_soon_as_it_can() -> None:
    ring = EVERY["workspace_plan/pinned-staging-ring"].Allocator(1024, 256)
    first, second, third, fourth = (ring.alloc(256) for _ in range(4))
    ring.free(second)
    ring.free(third)
    with pytest.raises(MemoryError, match="in flight"):
        ring.alloc(256)  # the first chunk is still in flight, so the later ones cannot be reused
    ring.free(first)
    assert [ring.alloc(256) for _ in range(3)] == [first, second, third]
    ring.free(fourth)
    roomy = EVERY["workspace_plan/pinned-staging-ring"].Allocator(1 << 30, 256)
    held: list[int] = []
    for _ in range(100):
        held.append(roomy.alloc(300))
        assert held[-1] < 8 * 512
        if len(held) == 3:
            roomy.free(held.pop(0))


def test_a_stream_takes_what_another_freed_only_after_a_wait_and_order_is_passed_on() -> None:
    strategy = EVERY["workspace_plan/stream-ordered-reuse"].Allocator(1 << 20, 256)
    block = strategy.alloc(4096, 0)
    strategy.free(block, 0)
    assert strategy.alloc(4096, 1) != block
    strategy.wait(1, 0)
    strategy.wait(2, 1)
    assert strategy.alloc(4096, 2) == block


def test_buddies_lie_on_multiples_of_their_size() -> None:
    strategy = EVERY["workspace_plan/buddy-blocks"].Allocator(1 << 20, 256)
    for size in (300, 5000, 256, 70_000, 1000):
        offset = strategy.alloc(size)
        assert offset % (1 << (size - 1).bit_length()) == 0


def test_a_full_list_is_searched_before_a_segregated_fit_gives_up() -> None:
    strategy = EVERY["workspace_plan/two-level-segregated-fit"].Allocator(33 * 256, 256)
    assert strategy.alloc(33 * 256) == 0  # rounded up to the next list, nothing would fit


class Memory:
    """A store in this process."""

    def __init__(self, size: int) -> None:
        self.units = np.zeros((size // UNIT, UNIT), np.uint8)

    def write(self, numbers: Numbers, data: Data, *, block: int | None = None) -> None:
        self.units[numbers] = data

    def read(self, numbers: Numbers, *, block: int | None = None) -> Data:
        return self.units[numbers]

    def copy(self, source: int, target: int, size: int) -> None:
        first, second, count = source // UNIT, target // UNIT, size // UNIT
        self.units[second : second + count] = self.units[first : first + count].copy()


@pytest.mark.parametrize("name", POOLS)
def test_no_sequence_of_a_pool_ever_reads_another_ones_tokens(name: str) -> None:
    module = POOLS[name]
    for _, trace in asked("kv_block_pool", module, "Pool"):
        pool = LocalPool(module, trace)
        room = room_for(pool, trace.max_tokens // 2)
        figures = Serving(trace, pool, Memory(trace.capacity_bytes), None).run()
        assert figures["fragmentation"] >= 1
        assert room_for(pool, trace.max_tokens // 2) == room > 0


def test_a_refused_sequence_takes_nothing_and_a_shared_page_is_freed_with_its_last_reader() -> None:
    for module in (PAGED, UNIFIED, PREFIX):
        pool = module.Pool(16 * 16 * 64, 64, 0, 256)
        pool.admit(1, 8 * 16, ())
        with pytest.raises(MemoryError):
            pool.admit(2, 1000, ())
        pool.admit(2, 4 * 16, ())
        pool.fork(1, 3)
        pool.free(1)
        with pytest.raises(MemoryError):
            pool.admit(4, 8 * 16, ())  # its pages are still read
        pool.free(3)
        pool.admit(4, 12 * 16, ())


def test_the_last_to_write_a_shared_page_needs_no_copy() -> None:
    pool = PREFIX.Pool(16 * 16 * 64, 64, 0, 256)
    pool.admit(1, 20, ())
    pool.fork(1, 2)
    pool.fork(1, 3)
    assert [len(pool.append(one, 1)) for one in (1, 2, 3)] == [1, 1, 0]
    assert len({tuple(pool.table(one)[1:]) for one in (1, 2, 3)}) == 3
    assert len({pool.table(one)[0] for one in (1, 2, 3)}) == 1


def test_a_prefix_is_found_after_its_reader_is_gone_and_its_beginning_is_evicted_last() -> None:
    pool = PREFIX.Pool(6 * 16 * 64, 64, 0, 96)
    pool.admit(1, 64, (11, 12, 13, 14))
    pool.free(1)
    assert pool.admit(2, 64, (11, 12, 99, 98)) == 32
    pool.free(2)
    pool.admit(3, 32, (71, 72))  # takes two of the cached pages: those at the ends of prefixes
    pool.free(3)
    assert pool.admit(4, 16, (11,)) == 16


def test_one_pool_serves_mixes_that_a_fixed_split_refuses() -> None:
    token, slot = 10_240, 64_389_120  # an fp8 token and one sequence's state of Qwen3.6-35B-A3B
    assert slot % (16 * token) == 0
    for lengths in ([4 * 16] * 31, [31 * 6288 - 16]):
        fixed, slabs = (module.Pool(32 * slot, token, slot, 200_000) for module in (PAGED, UNIFIED))
        admit_all(slabs, lengths)
        with pytest.raises(MemoryError):
            admit_all(fixed, lengths)


def admit_all(pool: Any, lengths: list[int]) -> None:  # noqa: ANN401 - of some entry
    """Admit sequences of these lengths."""
    for number, length in enumerate(lengths):
        pool.admit(number, length, ())


def test_a_slab_of_pages_becomes_a_slot_again() -> None:
    pool = UNIFIED.SlabPool(4 * 400, 100, 400)
    pages = pool.take("kv", 16)
    with pytest.raises(MemoryError):
        pool.take("state", 1)
    for page in pages:
        pool.give("kv", page)
    assert pool.available("state") == 4
    assert sorted(pool.take("state", 4)) == [0, 400, 800, 1200]


@settings(max_examples=60, deadline=None)
@given(
    histogram=st.dictionaries(st.integers(1, 40), st.integers(0, 50), max_size=8),
    count=st.integers(1, 5),
)
def test_buckets_waste_the_fewest_rows_that_the_budget_allows(histogram: dict[int, int], count: int) -> None:
    (plan,) = GRAPHS.run([histogram], 40, 10, 100, 400 + count * 100, 1)
    buckets = [batch for batch, _, _ in plan]
    assert len(buckets) <= count
    assert buckets[-1] == 40
    sizes = sorted(set(histogram) - {40})
    best = min(padding(histogram, (*chosen, 40)) for k in range(count) for chosen in itertools.combinations(sizes, k))
    assert padding(histogram, buckets) == best


def padding(histogram: dict[int, int], buckets: Sequence[int]) -> int:
    """Count the rows computed in vain, the obvious way."""
    return sum(count * (min(b for b in buckets if b >= size) - size) for size, count in histogram.items())


@pytest.mark.parametrize("name", [name for name in EVERY if name.startswith("graph_pool/")])
def test_graphs_stay_within_their_budget_and_apart_from_other_streams(name: str) -> None:
    for _, task in asked("graph_pool", EVERY[name], "run"):
        assert isinstance(task, GraphTask)
        arguments = (task.row_bytes, task.graph_bytes)
        streams = EVERY[name].run(
            list(task.histograms), task.max_batch, *arguments, task.budget_bytes, task.alignment
        )  # fmt: skip
        assert graphs.examine(task, streams)["budget_used"] <= 1
        with pytest.raises(MemoryError):
            EVERY[name].run(list(task.histograms), task.max_batch, *arguments, task.least_bytes() - 1, task.alignment)


def test_a_large_batch_runs_eagerly() -> None:
    assert GRAPHS.bucket_for(3, (1, 4, 8)) == 4
    assert GRAPHS.bucket_for(9, (1, 4, 8)) is None


def test_every_entry_has_a_form_of_its_operator() -> None:
    for name, module in EVERY.items():
        forms = {form.name for form in operators.load_allocation(name.split("/")[0]).forms}
        assert forms & set(vars(module)), name
    assert isinstance(next(asked("kv_block_pool", PAGED, "Pool"))[1], ServingTrace)
