"""A rank's end of its link to the switch. Lives in the candidate's process: it counts nothing and decides nothing.

The link is as unkind as the contract of ``torch.distributed`` allows, so that a scheme which is right here does not owe
it to luck. What is sent is read at the last moment, while somebody waits: a buffer that is changed before its send was
waited for arrives changed. What is received into is filled with a pattern at once: read before the wait, it is wrong.
"""

import mmap
import select
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from kb.validators.runtime.comm import frames
from kb.validators.runtime.comm.frames import Frame

_POISON = 0xA5
_STEP_S = 0.05


class LinkError(RuntimeError):
    """The other side cannot do what was asked: sizes differ, or a rank is gone."""


@dataclass
class Pending:
    """One operation under way."""

    ident: int
    source: Callable[[], bytes] | None = None
    """For a send: gives the bytes when the switch asks for them."""
    done: bool = False
    payload: bytes = b""
    error: str | None = None
    after: Callable[[bytes], None] | None = None
    """Called once with what arrived, when it arrives."""


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Return the bytes of a contiguous tensor on the CPU."""
    flat = tensor.detach().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b""


def fill(tensor: torch.Tensor, data: bytes) -> None:
    """Write bytes into a contiguous tensor."""
    _contiguous(tensor)
    if data:
        tensor.detach().reshape(-1).view(torch.uint8).copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))


def _contiguous(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ValueError("a tensor on the wire must be contiguous, and on the cpu")
    return tensor


@dataclass
class _State:
    """What the threads of a rank share."""

    pending: dict[int, Pending] = field(default_factory=dict)
    number: int = 0
    broken: str | None = None


class Link:
    """Posts operations and waits for them; may be used by several threads."""

    def __init__(self, channel: socket.socket, window: mmap.mmap, rank: int) -> None:
        self.rank = rank
        self.window = window
        self._channel = channel
        self._parser = frames.Parser()
        self._state = _State()
        self._reading, self._writing = threading.Lock(), threading.Lock()

    def send(self, tensor: torch.Tensor, to: int, tag: int = 0) -> Pending:
        """Offer a tensor to a rank; it is read when the other side has asked for it and somebody here waits."""
        size = _contiguous(tensor).numel() * tensor.itemsize
        made = self._new(source=lambda: bytes_of(tensor))
        self._write(Frame(frames.SEND, made.ident, to, first=tag, second=size))
        return made

    def recv(self, tensor: torch.Tensor, source: int, tag: int = 0) -> Pending:
        """Ask a rank for a tensor; its old contents are gone at once."""
        size = _contiguous(tensor).numel() * tensor.itemsize
        if size:
            tensor.detach().reshape(-1).view(torch.uint8).fill_(_POISON)
        made = self._new(after=lambda data: fill(tensor, data))
        self._write(Frame(frames.RECV, made.ident, source, first=tag, second=size))
        return made

    def collect(self, kind: int, members: int, number: int, parts: list[bytes]) -> Pending:
        """Take part in a collective: one part for all members, or one for each; one part of each comes back."""
        made = self._new()
        self._write(Frame(frames.COLLECT, made.ident, 0, kind, members, number, frames.packed(parts)))
        return made

    def put(self, data: bytes, to: int, offset: int) -> None:
        """Write into a rank's window. Nothing says when it arrives, or in which order, but ``signal`` and ``fence``."""
        self._write(Frame(frames.PUT, 0, to, first=offset, payload=data))

    def signal(self, to: int, slot: int) -> None:
        """Raise a signal at a rank, after all that was put there before."""
        self._write(Frame(frames.SIGNAL, 0, to, slot))

    def fence(self) -> Pending:
        """Have everything that was put arrive everywhere."""
        return self._ask(Frame(frames.FENCE))

    def get(self, size: int, source: int, offset: int) -> Pending:
        """Read a rank's window."""
        return self._ask(Frame(frames.GET, peer=source, first=offset, second=size))

    def signalled(self, source: int, slot: int) -> Pending:
        """Use up one signal of a rank."""
        return self._ask(Frame(frames.WAIT, peer=source, word=slot))

    def wait(self, pending: Pending) -> bytes:
        """Wait for an operation.

        Returns:
            What arrived.

        Raises:
            LinkError: It failed, or the round is over.
        """
        while not self.completed(pending, limit_s=_STEP_S):
            pass
        if pending.error is not None:
            raise LinkError(pending.error)
        return pending.payload

    def completed(self, pending: Pending, *, limit_s: float = 0.0) -> bool:
        """Tell whether an operation is over, looking at what arrives for at most ``limit_s`` seconds."""
        if not pending.done:
            with self._reading:
                if not pending.done:
                    self._step(limit_s)
        if not pending.done and self._state.broken is not None:
            pending.done, pending.error = True, self._state.broken
        return pending.done

    def _new(self, source: Callable[[], bytes] | None = None, after: Callable[[bytes], None] | None = None) -> Pending:
        with self._writing:
            self._state.number += 1
            made = Pending(self._state.number, source=source, after=after)
            self._state.pending[made.ident] = made
        return made

    def _ask(self, frame: Frame) -> Pending:
        made = self._new()
        self._write(Frame(frame.op, made.ident, frame.peer, frame.word, frame.first, frame.second))
        return made

    def _write(self, frame: Frame) -> None:
        with self._writing:
            self._channel.sendall(frame.head())
            if frame.payload:
                self._channel.sendall(frame.payload)

    def _step(self, limit_s: float) -> None:
        if not select.select([self._channel], [], [], limit_s)[0]:
            return
        piece = self._channel.recv(1 << 20)
        if not piece:
            self._state.broken = "the link was closed"
            return
        for frame in self._parser.feed(piece):
            self._take(frame)

    def _take(self, frame: Frame) -> None:
        if frame.op == frames.ABORT:
            self._state.broken = "another rank failed"
            return
        one = self._state.pending.get(frame.ident)
        if one is None:
            return
        if frame.op == frames.GO and one.source is not None:
            self._write(Frame(frames.DATA, one.ident, payload=one.source()))
            return
        del self._state.pending[frame.ident]
        if frame.op == frames.FAILED:
            one.error = bytes(frame.payload).decode("utf-8", "replace")
        else:
            one.payload = bytes(frame.payload)
            if one.after is not None:
                one.after(one.payload)
        one.done = True


class OneSided:
    """What a candidate gets as ``link``: windows that other ranks of the group write to and read from directly.

    Stands for symmetric memory: peers' buffers that are mapped into one address space. As there, a write has no order
    but what ``signal`` (release, to one peer) and ``fence`` (all peers) give it.
    """

    def __init__(self, link: Link, members: tuple[int, ...]) -> None:
        self._link = link
        self._members = members
        self.rank = members.index(link.rank)
        """This rank's place in the group."""
        self.world_size = len(members)
        self.window_bytes = len(link.window)
        """Size of every rank's window."""

    def window(self, shape: tuple[int, ...], dtype: torch.dtype, *, offset: int = 0) -> torch.Tensor:
        """Return a view of this rank's own window, ``offset`` bytes in; what others put there appears in it."""
        count = 1
        for size in shape:
            count *= size
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        view = memoryview(self._link.window)[offset : offset + count * dtype.itemsize]
        return torch.frombuffer(view, dtype=torch.uint8).view(dtype).view(shape)

    def put(self, peer: int, tensor: torch.Tensor, *, offset: int = 0) -> None:
        """Write a tensor into a peer's window; it arrives at the latest with the next ``signal`` there or ``fence``."""
        self._link.put(bytes_of(tensor.contiguous()), self._members[peer], offset)

    def get(self, peer: int, tensor: torch.Tensor, *, offset: int = 0) -> torch.Tensor:
        """Fill a contiguous tensor from a peer's window, as it is there now, and return it."""
        pending = self._link.get(tensor.numel() * tensor.itemsize, self._members[peer], offset)
        fill(_contiguous(tensor), self._link.wait(pending))
        return tensor

    def signal(self, peer: int, *, slot: int = 0) -> None:
        """Raise one signal at a peer, after all that was put there before (release)."""
        self._link.signal(self._members[peer], slot)

    def wait(self, peer: int, *, slot: int = 0) -> None:
        """Wait for one signal of a peer and use it up (acquire)."""
        self._link.wait(self._link.signalled(self._members[peer], slot))

    def fence(self) -> None:
        """Return when everything that this rank put has arrived."""
        self._link.wait(self._link.fence())
