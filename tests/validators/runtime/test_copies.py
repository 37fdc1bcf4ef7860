"""Slots that are copies of drawn ones but for one element each: what may be copied, and what a copy holds."""

import platform
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from kb.validators import operators
from kb.validators.operators.spec import Workload, generator
from kb.validators.runtime.batches import Batch
from kb.validators.runtime.contents import edit_of
from kb.validators.runtime.layout import Layout, contents_of, moving_bytes
from kb.validators.runtime.pairing import Regime, Session, Shape
from kb.validators.runtime.reference import storage
from kb.validators.runtime.scrutiny import Scrutiny
from kb.validators.runtime.shaping import Effort, changes_show, drawn_ahead, may_be_copied, reading_bounds, shape_for
from kb.validators.runtime.sides import FailedError, Side
from kb.validators.runtime.supply import Supply, mixed
from kb.validators.runtime.telemetry import Telemetry
from kb.validators.runtime.workplace import Workplace
from tests.validators.runtime.timed import ATTENTION, HONEST, MEMO

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(platform.system() != "Linux", reason="the sandbox is Linux's"),
]

OPERATOR = operators.load("rmsnorm")
WORKLOAD = Workload({"num_tokens": 16, "hidden_size": 1024}, "float32")
"""So large that two edits hardly ever choose the same element."""
COPIED = Shape(slots=8, spares=2, batches=1, sweep_bytes=1 << 16, pairs=3, warm_ups=1, copies=4)

Run = Callable[[str, Shape], Session]
"""Starts a candidate's process; takes its source and the shape of the session."""


@pytest.fixture(scope="module")
def place() -> Iterator[Workplace]:
    made = Workplace()
    yield made
    made.close()


@pytest.fixture(scope="module")
def baseline(place: Workplace) -> Iterator[Side]:
    side = Side(HONEST.encode(), place=place)
    side.start(OPERATOR, [WORKLOAD])
    yield side
    side.end()


@pytest.fixture
def run(place: Workplace, baseline: Side) -> Iterator[Run]:
    made: list[Side] = []

    def start(source: str, shape: Shape) -> Session:
        side = Side(source.encode(), place=place, limit_s=30)
        made.append(side)
        side.start(OPERATOR, [WORKLOAD])
        return Session(
            OPERATOR, WORKLOAD, regime=Regime("cold", "eager"), shape=shape, candidate=side, baseline=baseline,
            telemetry=Telemetry(None),
        )  # fmt: skip

    yield start
    for side in made:
        side.end()


def refused(session: Session) -> str:
    with pytest.raises(FailedError) as caught:
        session.run()
    return caught.value.reason


def test_slots_that_are_copies_but_for_one_element_are_all_timed_and_compared(run: Run) -> None:
    session = run(HONEST, COPIED)
    blocks = session.run()
    assert [len(block["batches"]) for block in blocks] == [1] * 6
    assert session.scrutiny.checked >= 3
    source = MEMO.replace("KEY", "bytes(x.numpy()) + bytes(weight.numpy())")
    run(source.replace("    if key", "    assert key not in known\n    if key"), COPIED).run()


def test_what_was_computed_for_the_slot_that_a_copy_is_of_is_wrong_for_the_copy(run: Run) -> None:
    alike = MEMO.replace("KEY", "bytes(x.reshape(-1)[::37].numpy())")
    assert refused(run(alike, replace(COPIED, spares=0))) == "wrong_values"


def test_writing_to_the_input_of_a_copy_is_seen(run: Run) -> None:
    source = HONEST.replace("    return", "    x.add_(1e-3)\n    return")
    assert refused(run(source, replace(COPIED, spares=0))) in ("input_changed", "wrong_values")


def test_a_copys_contents_are_those_of_its_source_but_for_its_own_element(baseline: Side) -> None:
    supply = Supply(OPERATOR, WORKLOAD, shared=False)
    drawn = supply.with_copies(supply.kept(2), 3)
    shape = replace(COPIED, slots=6, copies=3)
    layout = Layout(drawn, slots=6, moving=supply.moving, shared=(), sources=shape.sources)
    baseline.lay(layout)
    whole, edits = contents_of(drawn, supply.moving, shape.sources)
    assert [bool(one) for one in whole] == [True, True, False, False, False, False]
    baseline.time(whole, Batch(tuple(range(6))), picks=(0,), edits=edits)
    results = baseline.outputs(range(6))
    scrutiny = Scrutiny(OPERATOR, WORKLOAD, kind="cpu")
    for call, one in enumerate(drawn):
        assert scrutiny.exact(one, results[call]) is None
        assert scrutiny.exact(one, results[(call + 2) % 6]) is not None
    assert baseline.inputs_intact({k: moving_bytes(drawn[k], supply.moving) for k in range(6)}, range(6))
    baseline.release()


def test_an_edit_says_where_its_element_lies_also_in_a_strided_tensor() -> None:
    for law in OPERATOR.laws:
        made = OPERATOR.laws[law]({"num_tokens": 5, "hidden_size": 7}, "bfloat16", generator(3))
        for seed in range(6):
            edit = edit_of(OPERATOR, made, seed)
            assert edit is not None
            changed, before = edit.applied(made)[edit.index], made[edit.index]
            data = bytearray(storage(before))  # type: ignore[arg-type]
            data[edit.offset : edit.offset + len(edit.data)] = edit.data
            assert bytes(data) == storage(changed)  # type: ignore[arg-type]
            assert bytes(data) != storage(before)  # type: ignore[arg-type]


def test_only_where_every_changed_element_shows_in_the_result_may_slots_be_copies(
    place: Workplace, baseline: Side
) -> None:
    assert changes_show(baseline, Supply(OPERATOR, WORKLOAD, shared=False)) is True
    attention = operators.load("attention_prefill")
    axes = {"batch_size": 1, "q_len": 1, "kv_len": 8192, "num_heads": 1, "num_kv_heads": 1, "head_dim": 16, "causal": 0}
    long = Workload(axes, "bfloat16")
    side = Side(ATTENTION.encode(), place=place)
    try:
        side.start(attention, [long])
        assert changes_show(side, Supply(attention, long, shared=False)) is False
    finally:
        side.end()
    wrong = Side(HONEST.replace("    return", "    return 2 *").encode(), place=place)
    try:
        wrong.start(OPERATOR, [WORKLOAD])
        assert changes_show(wrong, Supply(OPERATOR, WORKLOAD, shared=False)) is None
    finally:
        wrong.end()


def test_copies_are_for_work_that_reading_bounds_on_a_gpu() -> None:
    peaks = {"copy_gbps": 4000.0, "matmul_tflops": {"float32": 50.0, "bfloat16": 700.0}}
    supply = Supply(OPERATOR, WORKLOAD, shared=False)
    assert reading_bounds(supply, "cuda", peaks)
    assert not reading_bounds(supply, "cpu", peaks)
    gemm = operators.load("gemm")
    square = Workload(dict.fromkeys(gemm.workloads[0].axes, 2048), "bfloat16")
    assert not reading_bounds(Supply(gemm, square, shared=False), "cuda", peaks)
    ids = operators.load("embedding")
    assert not reading_bounds(Supply(ids, ids.workloads[0], shared=False), "cuda", peaks)


def test_copies_fill_a_batch_that_new_contents_alone_leave_short_and_their_results_fit_too() -> None:
    supply = Supply(OPERATOR, Workload({"num_tokens": 4096, "hidden_size": 4096}, "bfloat16"), shared=False)
    cold = {"regime": Regime("cold", "eager"), "kind": "cuda", "cache_bytes": 50 << 20, "effort": Effort()}
    plain = shape_for(20.0, 25.0, supply, **cold)  # type: ignore[arg-type]
    copied = shape_for(20.0, 25.0, supply, copied=True, **cold)  # type: ignore[arg-type]
    assert plain is not None
    assert copied is not None
    assert (plain.slots, plain.copies) == (copied.drawn, 1)
    assert copied.slots == copied.drawn * copied.copies > plain.slots
    cost = OPERATOR.cost(supply.workload.axes, "bfloat16")
    assert copied.slots * cost.essential_bytes <= 4 << 30
    assert copied.slots * 20.0 >= 100 * 25.0 or (copied.slots + copied.drawn) * cost.essential_bytes > 4 << 30
    assert (plain.spares, copied.spares) == (1, 1)
    small = Supply(OPERATOR, Workload({"num_tokens": 64, "hidden_size": 64}, "bfloat16"), shared=False)
    many = shape_for(2.0, 25.0, small, copied=True, **cold)  # type: ignore[arg-type]
    assert many is not None
    assert many.spares == 2
    assert set(copied.sources) == set(range(copied.drawn, copied.slots))
    assert sorted(copied.sources.values()) == sorted(list(range(copied.drawn)) * (copied.copies - 1))


def test_where_weights_are_most_of_the_bytes_nobody_may_know_them_from_another_slot() -> None:
    gemm = operators.load("gemm")
    thin = Supply(gemm, Workload({"m": 2, "n": 512, "k": 512}, "bfloat16"), shared=False)
    assert not may_be_copied(thin, "cuda")
    tall = Supply(gemm, Workload({"m": 4096, "n": 16, "k": 64}, "bfloat16"), shared=False)
    assert may_be_copied(tall, "cuda")
    assert not may_be_copied(tall, "cpu")


def test_weights_count_in_what_is_drawn_uploaded_and_drawn_ahead() -> None:
    gemm = operators.load("gemm")
    supply = Supply(gemm, Workload({"m": 2, "n": 512, "k": 512}, "bfloat16"), shared=False)
    own = supply.moving_bytes + supply.static_bytes
    bounded = Effort(slot_bytes=5 * own)
    cold = {"regime": Regime("cold", "eager"), "kind": "cuda", "cache_bytes": 50 << 20}
    shape = shape_for(2.0, 25.0, supply, effort=bounded, **cold)  # type: ignore[arg-type]
    assert shape is not None
    assert (shape.slots, shape.drawn) == (5, 5)
    assert drawn_ahead(supply, "cuda", bounded) == 8, "as many as the first trial has"
    assert drawn_ahead(supply, "cuda", Effort(slot_bytes=50 * own)) == 50
    one = shape_for(2.0, 25.0, supply, effort=Effort(slot_bytes=own - 1), **cold)  # type: ignore[arg-type]
    assert one is not None
    assert one.slots == 1


def test_contents_that_come_back_differ_by_an_element_each_time_also_with_a_single_slot() -> None:
    supply = Supply(OPERATOR, WORKLOAD, shared=False, budget_s=0.0)
    (first,) = supply.begin(1, 0, 1000)
    seen = {b"".join(moving_bytes(first, supply.moving))}
    for (one,) in supply.several(6, 1):
        assert one.edits
        remade = mixed(
            OPERATOR, WORKLOAD, seed=one.seed, static_seed=one.static_seed, edit_seeds=one.edit_seeds
        )  # as whoever compares draws it again
        assert storage(remade[0]) == storage(one.arguments[0])  # type: ignore[arg-type]
        seen.add(b"".join(moving_bytes(one, supply.moving)))
    assert len(seen) == 7
