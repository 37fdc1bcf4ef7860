"""The judge's switch: all that one rank says to another passes through here, and is counted here."""

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping

from kb.validators.runtime.arena import Arena
from kb.validators.runtime.comm import frames
from kb.validators.runtime.comm.exchange import Exchange, Traffic
from kb.validators.runtime.comm.frames import Frame, FrameError, Parser

_MOST_QUEUED_BYTES = 256 << 20
"""Most bytes that a rank may have asked for and not read."""


_MOST_PIECES = 1 << 10
"""Most pieces that are read from a rank after all have answered; one piece holds many messages."""


class _Port:
    """One rank's socket, with what still has to be written to it."""

    def __init__(self, rank: int, channel: socket.socket) -> None:
        self.rank, self.channel = rank, channel
        self.parser = Parser()
        self.queue: deque[memoryview] = deque()
        self.queued = 0
        """Bytes of the queue."""
        channel.setblocking(False)


class Switch:
    """Runs on a thread of its own from ``start`` to ``close``."""

    def __init__(self, channels: Mapping[int, socket.socket], windows: Mapping[int, Arena]) -> None:
        self._ports = {rank: _Port(rank, channel) for rank, channel in channels.items()}
        self._exchange = Exchange(windows, self._say)
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._closing = False
        self.heard = time.monotonic()
        """When the last frame came."""
        self.broken = False
        """True if a rank broke the protocol in this round, so that nobody needs to wait for it."""
        self.fault: BaseException | None = None
        """An error of the switch itself."""
        for port in self._ports.values():
            self._selector.register(port.channel, selectors.EVENT_READ, port)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._serve, name="kb-switch", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def close(self) -> None:
        """End the thread and close all links."""
        self._closing = True
        self._wake.send(b"x")
        self._thread.join(timeout=5)
        for port in self._ports.values():
            port.channel.close()
        self._wake.close()
        self._woken.close()
        self._selector.close()

    def begin(self) -> None:
        """Begin a round."""
        with self._lock:
            self._exchange.begin()
            self.heard = time.monotonic()
            self.broken = False

    def abort(self) -> None:
        """Tell all ranks that the round is over; whoever waits, waits no longer."""
        with self._lock:
            for port in self._ports.values():
                with contextlib.suppress(FrameError):
                    self._say(port.rank, Frame(frames.ABORT))
        self._wake.send(b"x")

    def finish(self) -> Traffic:
        """End a round, when all ranks have answered.

        Returns:
            What was moved, and as problems what is left: nothing may be under way any more.
        """
        with self._lock:
            for port in self._ports.values():
                if all(self._read(port) for _ in range(_MOST_PIECES)):
                    self._exchange.problem("left_on_wire", f"rank {port.rank} does not stop sending")
            return self._exchange.finish()

    def _serve(self) -> None:
        try:
            self._loop()
        except Exception as error:  # noqa: BLE001 - nobody would hear of it, and a candidate would be blamed
            self.fault = error

    def _loop(self) -> None:
        while not self._closing:
            with self._lock:
                pending = self._exchange.unordered()
            for key, events in self._selector.select(0.005 if pending else 0.5):
                if key.data is None:
                    self._woken.recv(1 << 10)
                    continue
                with self._lock:
                    if events & selectors.EVENT_READ:
                        self._read(key.data)
                    if events & selectors.EVENT_WRITE:
                        self._flush(key.data)
            with self._lock:
                self._exchange.linger()

    def _read(self, port: _Port) -> bool:
        """Take what one rank has written; False if there is nothing."""
        try:
            piece = port.channel.recv(1 << 20)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            piece = b""
        if not piece:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(port.channel)
            return False
        self.heard = time.monotonic()
        try:
            for frame in port.parser.feed(piece):
                self._exchange.take(port.rank, frame)
        except FrameError as error:
            self.broken = True
            self._exchange.problem(error.reason, f"rank {port.rank}: {error}")
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(port.channel)
            return False
        return True

    def _say(self, rank: int, frame: Frame) -> None:
        port = self._ports[rank]
        for part in (frame.head(), frame.payload):
            if part:
                port.queue.append(memoryview(part))
                port.queued += len(part)
        if port.queued > _MOST_QUEUED_BYTES:
            raise FrameError("more asked for than read", reason="memory_limit")
        self._flush(port)

    def _flush(self, port: _Port) -> None:
        while port.queue:
            try:
                done = port.channel.send(port.queue[0])
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                port.queue.clear()
                port.queued = 0
                break
            port.queued -= done
            rest = port.queue[0][done:]
            if rest:
                port.queue[0] = rest
            else:
                port.queue.popleft()
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if port.queue else 0)
        with contextlib.suppress(KeyError, ValueError):
            if self._selector.get_key(port.channel).events != wanted:
                self._selector.modify(port.channel, wanted, port)
