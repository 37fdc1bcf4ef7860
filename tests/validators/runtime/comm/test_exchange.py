"""The rules of the wire: what meets, what is counted, what arrives late, and what may not be left."""

from collections.abc import Iterator

import pytest

from kb.validators.runtime.arena import Arena
from kb.validators.runtime.comm import exchange, frames
from kb.validators.runtime.comm.exchange import Exchange
from kb.validators.runtime.comm.frames import KINDS, Frame, FrameError


class Wire:
    """An exchange between three ranks, and what it told each of them."""

    def __init__(self) -> None:
        self.windows = {rank: Arena(1 << 14) for rank in range(3)}
        self.told: list[tuple[int, Frame]] = []
        self.rules = Exchange(self.windows, lambda rank, frame: self.told.append((rank, frame)))

    def takes(self, rank: int, op: int, **fields: int | bytes) -> None:
        self.rules.take(rank, Frame(op, **fields))  # type: ignore[arg-type]

    def heard(self, rank: int) -> list[tuple[int, int]]:
        """Return what a rank was told: operation and which of its own it is about."""
        return [(frame.op, frame.ident) for to, frame in self.told if to == rank]

    def window(self, rank: int, size: int) -> bytes:
        return self.windows[rank].read(0, size)


@pytest.fixture
def wire() -> Iterator[Wire]:
    made = Wire()
    yield made
    for one in made.windows.values():
        one.close()


def problems(wire: Wire) -> set[str]:
    return {reason for reason, _ in wire.rules.finish().problems}


def test_data_are_asked_for_only_when_both_sides_are_there(wire: Wire) -> None:
    wire.takes(0, frames.SEND, ident=1, peer=2, second=4)
    assert wire.told == []
    wire.takes(2, frames.RECV, ident=9, peer=0, second=4)
    assert wire.heard(0) == [(frames.GO, 1)]
    wire.takes(0, frames.DATA, ident=1, payload=b"abcd")
    assert wire.told[-2] == (2, Frame(frames.DONE, 9, payload=b"abcd"))
    assert wire.heard(0)[-1] == (frames.DONE, 1)
    traffic = wire.rules.finish()
    assert (traffic.sent, traffic.received, traffic.problems) == ({0: 4}, {2: 4}, [])


def test_messages_of_one_kind_meet_in_order_and_tags_keep_others_apart(wire: Wire) -> None:
    for ident, tag in ((1, 0), (2, 7), (3, 0)):
        wire.takes(0, frames.SEND, ident=ident, peer=1, first=tag, second=1)
    wire.takes(1, frames.RECV, ident=11, peer=0, first=7, second=1)
    wire.takes(1, frames.RECV, ident=12, peer=0, second=1)
    wire.takes(1, frames.RECV, ident=13, peer=0, second=1)
    assert wire.heard(0) == [(frames.GO, 2), (frames.GO, 1), (frames.GO, 3)]


def test_a_receive_of_another_size_fails_on_both_sides(wire: Wire) -> None:
    wire.takes(0, frames.SEND, ident=1, peer=1, second=4)
    wire.takes(1, frames.RECV, ident=2, peer=0, second=8)
    assert [frame.op for _, frame in wire.told] == [frames.FAILED, frames.FAILED]
    assert wire.rules.finish().sent == {}


def test_what_nobody_received_or_waited_for_is_a_problem(wire: Wire) -> None:
    wire.takes(0, frames.SEND, ident=1, peer=1, second=4)
    assert problems(wire) == {"left_on_wire"}
    wire.takes(1, frames.RECV, ident=1, peer=2, second=4)
    assert problems(wire) == {"unfinished_transfer"}
    wire.takes(0, frames.SEND, ident=1, peer=1, second=4)
    wire.takes(1, frames.RECV, ident=1, peer=0, second=4)
    assert problems(wire) == {"unfinished_transfer"}
    wire.takes(0, frames.SIGNAL, peer=1, word=3)
    assert problems(wire) == {"left_on_wire"}
    wire.takes(0, frames.COLLECT, ident=1, first=0b11, second=1, payload=frames.packed([b"x"]))
    assert problems(wire) == {"unfinished_transfer"}
    assert problems(wire) == set()


def test_a_write_is_not_seen_before_it_is_released(wire: Wire) -> None:
    wire.rules.begin()
    before = wire.window(1, 4)
    wire.takes(0, frames.PUT, peer=1, payload=b"wxyz")
    assert wire.window(1, 4) == before
    wire.takes(0, frames.SIGNAL, peer=2)
    assert wire.window(1, 4) == before, "a signal releases what was put to the rank that is signalled"
    wire.takes(0, frames.SIGNAL, peer=1)
    assert wire.window(1, 4) == b"wxyz"
    wire.takes(1, frames.WAIT, ident=5, peer=0)
    wire.takes(2, frames.WAIT, ident=6, peer=0)
    assert wire.heard(1) == [(frames.DONE, 5)]
    assert problems(wire) == set()


def test_a_fence_releases_everything_of_one_rank(wire: Wire) -> None:
    wire.takes(0, frames.PUT, peer=1, payload=b"wxyz")
    wire.takes(0, frames.PUT, peer=2, payload=b"efgh")
    wire.takes(2, frames.PUT, peer=1, first=8, payload=b"mnop")
    wire.takes(0, frames.FENCE, ident=3)
    assert (wire.window(1, 4), wire.window(2, 4)) == (b"wxyz", b"efgh")
    assert wire.heard(0) == [(frames.DONE, 3)]
    assert problems(wire) == {"unfinished_transfer"}, "that of rank 2 is still on its way"


def test_a_write_that_nothing_orders_arrives_some_time_and_is_a_problem(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_LINGER_S", 0.0)
    wire.takes(0, frames.PUT, peer=1, payload=b"wxyz")
    assert wire.rules.unordered()
    wire.rules.linger()
    assert wire.window(1, 4) == b"wxyz"
    assert not wire.rules.unordered()
    assert problems(wire) == {"unfinished_transfer"}


def test_the_last_write_to_a_place_stays(wire: Wire) -> None:
    for _ in range(20):
        wire.takes(0, frames.PUT, peer=1, payload=b"old!")
        wire.takes(0, frames.PUT, peer=1, payload=b"new!")
        wire.takes(0, frames.FENCE, ident=1)
        assert wire.window(1, 4) == b"new!"


def test_a_wait_uses_up_one_signal_of_one_rank_and_slot(wire: Wire) -> None:
    for slot in (0, 0, 1):
        wire.takes(0, frames.SIGNAL, peer=1, word=slot)
    for ident, slot in ((1, 0), (2, 1), (3, 1), (4, 0)):
        wire.takes(1, frames.WAIT, ident=ident, peer=0, word=slot)
    assert wire.heard(1) == [(frames.DONE, 1), (frames.DONE, 2), (frames.DONE, 4)]
    wire.takes(0, frames.SIGNAL, peer=1, word=1)
    assert wire.heard(1)[-1] == (frames.DONE, 3)


def test_every_round_begins_with_noise_where_the_last_one_wrote(wire: Wire) -> None:
    wire.takes(0, frames.PUT, peer=1, first=12_000, payload=b"A" * 64)
    wire.takes(0, frames.FENCE, ident=1)
    assert wire.windows[1].read(12_000, 64) == b"A" * 64
    wire.rules.begin()
    assert wire.windows[1].read(12_000, 64) != b"A" * 64


def test_reading_a_window_counts_for_its_owner(wire: Wire) -> None:
    wire.windows[2].write(4, b"data")
    wire.takes(0, frames.GET, ident=7, peer=2, first=4, second=4)
    assert wire.told == [(0, Frame(frames.DONE, 7, payload=b"data"))]
    traffic = wire.rules.finish()
    assert (traffic.sent, traffic.received) == ({2: 4}, {0: 4})


def test_a_collective_waits_for_all_and_is_known_by_its_name(wire: Wire) -> None:
    kind = KINDS.index("all_gather")
    for rank in (0, 2):
        wire.takes(
            rank, frames.COLLECT, ident=rank + 1, word=kind, first=0b101, second=1,
            payload=frames.packed([bytes([65 + rank]) * 3]),
        )  # fmt: skip
    assert [frames.unpacked(frame.payload) for _, frame in wire.told] == [[b"AAA", b"CCC"]] * 2
    traffic = wire.rules.finish()
    assert traffic.calls == {kind: 2}
    assert traffic.collectives == {kind: 6}
    assert traffic.sent == {0: 3, 2: 3}


def test_ranks_that_call_different_collectives_are_told(wire: Wire) -> None:
    for rank, name in ((0, "broadcast"), (1, "all_reduce")):
        wire.takes(
            rank, frames.COLLECT, ident=1, word=KINDS.index(name), first=0b11, second=1, payload=frames.packed([b"x"])
        )
    assert [frame.op for _, frame in wire.told] == [frames.FAILED, frames.FAILED]


@pytest.mark.parametrize(
    ("op", "fields"),
    [
        (77, {}),
        (frames.SEND, {"peer": 3}),
        (frames.DATA, {"ident": 5, "payload": b"unasked"}),
        (frames.PUT, {"peer": 1, "first": 1 << 14, "payload": b"x"}),
        (frames.PUT, {"peer": 1, "first": (1 << 64) - 1, "payload": b"x"}),
        (frames.GET, {"peer": 1, "first": 0, "second": 1 << 63}),
        (frames.COLLECT, {"first": 0b110, "payload": frames.packed([b"x"])}),
        (frames.COLLECT, {"first": 0b111, "payload": frames.packed([b"x", b"y"])}),
        (frames.COLLECT, {"first": 0b111, "payload": b"no parts"}),
        (frames.COLLECT, {"first": 0b111, "word": 99, "payload": frames.packed([b"x"])}),
        (frames.COLLECT, {"first": 0b111, "word": KINDS.index("barrier"), "payload": frames.packed([b"data"])}),
    ],
)
def test_what_no_honest_link_sends_is_refused(wire: Wire, op: int, fields: dict[str, int | bytes]) -> None:
    with pytest.raises(FrameError) as caught:
        wire.takes(0, op, **fields)
    assert caught.value.reason == "forged_protocol"


@pytest.mark.parametrize("op", [frames.SEND, frames.RECV, frames.WAIT])
def test_a_flood_of_operations_is_refused(wire: Wire, op: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_MOST_POSTS", 100)
    for tag in range(100):
        wire.takes(0, op, ident=tag, peer=1, first=tag, word=tag)
    with pytest.raises(FrameError) as caught:
        wire.takes(0, op, ident=100, peer=1, first=100, word=100)
    assert caught.value.reason == "memory_limit"


def test_a_flood_of_bytes_is_refused(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_MOST_HELD_BYTES", 1 << 12)
    for _ in range(4):
        wire.takes(0, frames.PUT, peer=1, payload=b"x" * 1024)
    with pytest.raises(FrameError) as caught:
        wire.takes(0, frames.PUT, peer=1, payload=b"x")
    assert caught.value.reason == "memory_limit"


def test_delivering_makes_room_again(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_MOST_HELD_BYTES", 1 << 12)
    monkeypatch.setattr(exchange, "_MOST_POSTS", 8)
    for turn in range(20):
        for _ in range(3):
            wire.takes(0, frames.PUT, peer=1, payload=b"x" * 1024)
        wire.takes(0, frames.FENCE, ident=turn)
        wire.takes(0, frames.SEND, ident=turn, peer=2, second=1)
        wire.takes(2, frames.RECV, ident=turn, peer=0, second=1)
        wire.takes(0, frames.DATA, ident=turn, payload=b"x")
        wire.takes(2, frames.WAIT, ident=turn, peer=0)
        wire.takes(0, frames.SIGNAL, peer=2)
    assert problems(wire) == set()
