"""Sides at rest: nobody goes on while it is another's turn, whatever went wrong; what a side said before it failed."""

import platform
from collections.abc import Iterator

import pytest

from kb.validators import operators
from kb.validators.operators.spec import Workload
from kb.validators.runtime import processes, replies
from kb.validators.runtime.lineup import Lineup
from kb.validators.runtime.pairing import NotCapturableError, Regime, Session, Shape
from kb.validators.runtime.sides import Side
from kb.validators.runtime.telemetry import Telemetry
from kb.validators.runtime.workplace import Workplace
from tests.validators.runtime.timed import HONEST

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(platform.system() != "Linux", reason="the sandbox is Linux's"),
]

OPERATOR = operators.load("rmsnorm")
WORKLOAD = Workload({"num_tokens": 4, "hidden_size": 64}, "float32")


@pytest.fixture
def place() -> Iterator[Workplace]:
    made = Workplace()
    yield made
    made.close()


@pytest.fixture
def sides(place: Workplace) -> Iterator[tuple[Side, Side]]:
    made = Side(HONEST.encode(), place=place), Side(HONEST.encode(), place=place)
    for side in made:
        side.start(OPERATOR, [WORKLOAD])
    yield made
    for side in made:
        side.end()


def test_a_side_that_rests_is_known_to_stand_still_until_it_is_woken(sides: tuple[Side, Side]) -> None:
    side, seen = sides[0], []
    for act in (side.wake, side.rest, side.wake):
        act()
        stopped = all(processes.still(pid) for pid in side.worker.pids()[1:] or side.worker.pids())
        seen.append((side.worker.stands_still, stopped))
    assert [known for known, _ in seen] == [False, True, False]
    assert seen[1] == (True, True)


def test_where_no_graph_can_be_captured_both_sides_give_their_memory_back_and_rest(sides: tuple[Side, Side]) -> None:
    shape = Shape(slots=2, spares=0, batches=1, sweep_bytes=0, pairs=1, warm_ups=0)
    session = Session(
        OPERATOR, WORKLOAD, regime=Regime("cold", "graph"), shape=shape, candidate=sides[0], baseline=sides[1],
        telemetry=Telemetry(None),
    )  # fmt: skip
    with pytest.raises(NotCapturableError, match="graphs need a GPU"):
        session.run()
    assert [side.worker.stands_still for side in sides] == [True, True]


def test_a_baseline_that_cannot_be_started_is_told_of_with_what_it_printed(place: Workplace) -> None:
    notes: list[str] = []
    lineup = Lineup(
        OPERATOR, [WORKLOAD], side=lambda source: Side(source, place=place), kind="cpu", say=notes.append, notes=notes
    )
    side = Side(b"print('the driver is too old')\nraise RuntimeError('no kernel image')\n", place=place)
    try:
        told = lineup.fault(side, [WORKLOAD], "library")
    finally:
        side.end()
    assert told is not None
    assert told.startswith("library: build_failed: RuntimeError: no kernel image; it said: ")
    assert "the driver is too old" in told
    assert "candidate.py" in told, "a traceback"


@pytest.mark.parametrize(
    ("detail", "memory"),
    [
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate", True),
        ("AcceleratorError: CUDA error: out of memory", True),
        ("crashed: the process ended: SIGKILL", True),
        ("crashed: the process ended: SIGSEGV", False),
        ("ValueError: out of range", False),
    ],
)
def test_where_no_memory_was_left_is_known_by_the_words(detail: str, memory: bool) -> None:
    assert replies.is_out_of_memory(detail) is memory
