"""What is under way between the ranks in one round: matched, counted and delivered, without sockets or threads.

Deliveries are as late and as unordered as the contract allows. A send and a receive meet (rendezvous, as in gloo and,
for large messages, in NCCL), so a scheme in which all ranks send first hangs here too. What is put into a window stays
here until its sender signals or fences.
"""

import os
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from kb.validators.runtime.arena import Arena
from kb.validators.runtime.comm import frames
from kb.validators.runtime.comm.frames import KINDS, Frame, FrameError

_LINGER_S = 0.02
"""How long an unordered write may take to arrive by itself."""

_MOST_POSTS = 1 << 16
"""Most operations of a round that may wait for something."""

_MOST_HELD_BYTES = 512 << 20
"""Most bytes of a round that may be under way."""


@dataclass
class Traffic:
    """What went over the switch in one round, by rank of the job; payload only."""

    sent: Counter[int] = field(default_factory=Counter)
    received: Counter[int] = field(default_factory=Counter)
    messages: Counter[int] = field(default_factory=Counter)
    """Messages that a rank sent, one-sided ones and collectives included."""
    collectives: Counter[int] = field(default_factory=Counter)
    """Kind of a library collective to the bytes that it moved."""
    calls: Counter[int] = field(default_factory=Counter)
    """Kind of a library collective to how often a rank took part."""
    problems: list[tuple[str, str]] = field(default_factory=list)
    """Reason and detail."""


@dataclass
class _Post:
    """An offer to send, or a wish to receive."""

    rank: int
    ident: int
    size: int


@dataclass
class _Put:
    """A write that has not arrived yet."""

    offset: int
    data: bytes
    due: float


class _Round:
    """All that is under way between the ranks."""

    def __init__(self) -> None:
        self.traffic = Traffic()
        self.sends: dict[tuple[int, int, int], deque[_Post]] = {}
        self.recvs: dict[tuple[int, int, int], deque[_Post]] = {}
        self.matched: dict[tuple[int, int], _Post] = {}
        """(sender, its operation) to the receiver's."""
        self.collects: dict[tuple[int, int], dict[int, tuple[int, int, list[bytes]]]] = {}
        """(members, number) to rank to (operation, kind, parts)."""
        self.puts: dict[tuple[int, int], list[_Put]] = {}
        self.posts = self.held = 0
        """Operations that wait, and bytes that are held for others."""
        self.late: Counter[int] = Counter()
        """Writes that arrived without signal or fence, by sender."""
        self.signals: Counter[tuple[int, int, int]] = Counter()
        """(from, to, slot) to signals that nobody has used up."""
        self.waiting: dict[tuple[int, int, int], deque[int]] = {}


class Exchange:
    """The rules of the wire; whoever calls it makes sure that calls come one after the other."""

    def __init__(self, windows: Mapping[int, Arena], say: Callable[[int, Frame], None]) -> None:
        self._ranks: Collection[int] = tuple(windows)
        self._windows = windows
        self._say = say
        self._round = _Round()
        self._dice = random.Random()  # noqa: S311 - chooses an order of delivery, and nobody sees it
        self._touched: dict[int, list[tuple[int, int]]] = {rank: [(0, 1 << 12)] for rank in windows}

    def begin(self) -> None:
        """Begin a round: nothing is under way, nothing counted, and windows hold noise that no rank has seen."""
        self._round = _Round()
        for rank, places in self._touched.items():
            for offset, size in places:
                noise = os.urandom(min(size, 1 << 16))
                self._windows[rank].write(offset, (noise * (size // max(len(noise), 1) + 1))[:size])
            del places[1:]

    def finish(self) -> Traffic:
        """End a round, when all ranks have answered.

        Returns:
            What was moved, and as problems what is left: nothing may be under way any more.
        """
        now, self._round = self._round, _Round()
        return _settled(now)

    def problem(self, reason: str, detail: str) -> None:
        """Note what is wrong with a rank."""
        self._round.traffic.problems.append((reason, detail))

    def unordered(self) -> bool:
        """Tell whether writes are under way that nothing has ordered yet."""
        return any(self._round.puts.values())

    def take(self, rank: int, frame: Frame) -> None:
        """Take one frame of a rank.

        Raises:
            FrameError: No honest link would send it.
        """
        handlers = {
            frames.SEND: self._on_send, frames.RECV: self._on_recv, frames.DATA: self._on_data,
            frames.COLLECT: self._on_collect, frames.PUT: self._on_put, frames.SIGNAL: self._on_signal,
            frames.FENCE: self._on_fence, frames.GET: self._on_get, frames.WAIT: self._on_wait,
        }  # fmt: skip
        if frame.op not in handlers:
            raise FrameError(f"operation {frame.op}")
        if frame.op not in (frames.DATA, frames.COLLECT, frames.FENCE) and frame.peer not in self._ranks:
            raise FrameError(f"no rank {frame.peer}")
        handlers[frame.op](rank, frame)

    def _on_send(self, rank: int, frame: Frame) -> None:
        self._post(self._round.sends, (rank, frame.peer, frame.first), _Post(rank, frame.ident, frame.second))
        self._match((rank, frame.peer, frame.first))

    def _on_recv(self, rank: int, frame: Frame) -> None:
        self._post(self._round.recvs, (frame.peer, rank, frame.first), _Post(rank, frame.ident, frame.second))
        self._match((frame.peer, rank, frame.first))

    def _post(self, table: dict[tuple[int, int, int], deque[_Post]], key: tuple[int, int, int], one: _Post) -> None:
        self._one_more()
        table.setdefault(key, deque()).append(one)

    def _one_more(self, size: int = 0) -> None:
        """Count an operation that has to wait, and the bytes that it brings."""
        self._round.posts += 1
        self._round.held += size
        if self._round.posts > _MOST_POSTS or self._round.held > _MOST_HELD_BYTES:
            raise FrameError("too much under way at once", reason="memory_limit")

    def _match(self, key: tuple[int, int, int]) -> None:
        """Let the oldest send and the oldest receive of one kind meet."""
        sends, recvs = self._round.sends.get(key), self._round.recvs.get(key)
        if not sends or not recvs:
            return
        send, recv = sends.popleft(), recvs.popleft()
        self._round.posts -= 2
        if send.size != recv.size:
            told = f"a send of {send.size} bytes met a receive of {recv.size}"
            for one in (send, recv):
                self._say(one.rank, Frame(frames.FAILED, one.ident, payload=told.encode()))
            return
        self._round.matched[send.rank, send.ident] = recv
        self._say(send.rank, Frame(frames.GO, send.ident))

    def _on_data(self, rank: int, frame: Frame) -> None:
        recv = self._round.matched.pop((rank, frame.ident), None)
        if recv is None or recv.size != len(frame.payload):
            raise FrameError("data that nobody asked for")
        self._count(rank, recv.rank, recv.size)
        self._say(recv.rank, Frame(frames.DONE, recv.ident, payload=frame.payload))
        self._say(rank, Frame(frames.DONE, frame.ident))

    def _on_collect(self, rank: int, frame: Frame) -> None:
        members = [one for one in self._ranks if frame.first >> one & 1]
        parts = frames.unpacked(frame.payload)
        if rank not in members or len(parts) not in (1, len(members)):
            raise FrameError("a collective of other members")
        if frame.word >= len(KINDS) or (KINDS[frame.word] == "barrier" and any(parts)):
            raise FrameError("a collective that is none")
        self._one_more(len(frame.payload))
        arrived = self._round.collects.setdefault((frame.first, frame.second), {})
        arrived[rank] = (frame.ident, frame.word, parts)
        if len(arrived) < len(members):
            return
        del self._round.collects[frame.first, frame.second]
        self._round.posts -= len(members)
        self._round.held -= sum(len(part) for _, _, given in arrived.values() for part in given)
        kinds = {kind for _, kind, _ in arrived.values()}
        for place, one in enumerate(members):
            found = []
            for other in members:
                _, kind, given = arrived[other]
                part = given[0] if len(given) == 1 else given[place]
                found.append(part)
                if other != one:
                    self._count(other, one, len(part))
                    self._round.traffic.collectives[kind] += len(part)
            self._round.traffic.calls[arrived[one][1]] += 1
            answer = Frame(frames.DONE, arrived[one][0], payload=frames.packed(found))
            if len(kinds) > 1:
                answer = Frame(frames.FAILED, arrived[one][0], payload=b"ranks called different collectives")
            self._say(one, answer)

    def _on_put(self, rank: int, frame: Frame) -> None:
        if frame.first + len(frame.payload) > self._windows[frame.peer].size_bytes:
            raise FrameError("a write beyond a window")
        self._one_more(len(frame.payload))
        made = _Put(frame.first, bytes(frame.payload), time.monotonic() + _LINGER_S * (1 + self._dice.random()))
        self._round.puts.setdefault((rank, frame.peer), []).append(made)
        self._count(rank, frame.peer, len(frame.payload))

    def _arrive(self, key: tuple[int, int]) -> None:
        """Deliver all writes from one rank to another, in any order but for those to the same place."""
        puts = self._round.puts.pop(key, [])
        self._round.posts -= len(puts)
        apart = len({one.offset for one in puts}) == len(puts)
        if apart:
            self._dice.shuffle(puts)
        for one in puts:
            self._write(key[1], one)

    def _write(self, rank: int, one: _Put) -> None:
        self._round.held -= len(one.data)
        self._windows[rank].write(one.offset, one.data)
        if len(self._touched[rank]) < _MOST_POSTS:
            self._touched[rank].append((one.offset, len(one.data)))

    def linger(self) -> None:
        """Deliver what has waited for long enough, last things first."""
        now = time.monotonic()
        for (rank, peer), puts in self._round.puts.items():
            for one in [one for one in reversed(puts) if one.due <= now]:
                puts.remove(one)
                self._round.posts -= 1
                self._write(peer, one)
                self._round.late[rank] += 1

    def _on_signal(self, rank: int, frame: Frame) -> None:
        self._arrive((rank, frame.peer))
        key = (rank, frame.peer, frame.word)
        waiting = self._round.waiting.get(key)
        if waiting:
            self._round.posts -= 1
            self._say(frame.peer, Frame(frames.DONE, waiting.popleft()))
        else:
            self._round.signals[key] += 1
        self._round.traffic.messages[rank] += 1

    def _on_wait(self, rank: int, frame: Frame) -> None:
        key = (frame.peer, rank, frame.word)
        if self._round.signals[key] > 0:
            self._round.signals[key] -= 1
            self._say(rank, Frame(frames.DONE, frame.ident))
        else:
            self._one_more()
            self._round.waiting.setdefault(key, deque()).append(frame.ident)

    def _on_fence(self, rank: int, frame: Frame) -> None:
        for key in [key for key in self._round.puts if key[0] == rank]:
            self._arrive(key)
        self._say(rank, Frame(frames.DONE, frame.ident))

    def _on_get(self, rank: int, frame: Frame) -> None:
        try:
            data = self._windows[frame.peer].read(frame.first, frame.second)
        except ValueError as error:
            raise FrameError("a read beyond a window") from error
        self._count(frame.peer, rank, len(data))
        self._say(rank, Frame(frames.DONE, frame.ident, payload=data))

    def _count(self, source: int, to: int, size: int) -> None:
        if source != to:
            self._round.traffic.sent[source] += size
            self._round.traffic.received[to] += size
        self._round.traffic.messages[source] += 1


def _settled(now: _Round) -> Traffic:
    """Add to the problems of a round what is left of it."""
    problems = now.traffic.problems
    for (source, to, _), posts in now.sends.items():
        if posts:
            problems.append(("left_on_wire", f"rank {source} sent {posts[0].size} bytes that rank {to} never received"))
    for (source, to, _), posts in now.recvs.items():
        if posts:
            problems.append(
                ("unfinished_transfer", f"rank {to} still waits for {posts[0].size} bytes of rank {source}")
            )
    for (source, _), recv in now.matched.items():
        problems.append(("unfinished_transfer", f"rank {source} never waited for its send of {recv.size} bytes"))
    for late in {*now.late, *(key[0] for key, puts in now.puts.items() if puts)}:
        problems.append(("unfinished_transfer", f"rank {late} returned before its writes had arrived"))
    for arrived in now.collects.values():
        problems.append(("unfinished_transfer", f"a collective that only ranks {sorted(arrived)} entered"))
    for (source, to, _), count in now.signals.items():
        if count:
            problems.append(("left_on_wire", f"rank {source} raised {count} signals that rank {to} never used"))
    return now.traffic
