"""What a worker's process is started with, what is needed of it, and what becomes of what it prints."""

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_TAIL_BYTES = 16 << 10


@dataclass(frozen=True)
class Launch:
    """What a worker's process is started with."""

    handles: tuple[int, ...]
    """Descriptors that it keeps: its end of the channel, and the arena."""
    output: int
    """Descriptor that takes what it prints."""
    environment: Mapping[str, str]
    folder: Path
    """Where it starts."""


class Process(Protocol):
    """What is needed of a worker's outermost process; ``subprocess.Popen`` has it."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code."""

    def kill(self) -> None:
        """Send SIGKILL."""


Spawn = Callable[[Launch], Process]
"""Starts the process of a worker."""


class Output:
    """The last bytes of what a worker prints; it can print for ever without filling anything."""

    def __init__(self, descriptor: int) -> None:
        self._lock = threading.Lock()
        self._tail: deque[bytes] = deque()
        self._thread = threading.Thread(target=self._drain, args=(descriptor,), name="kb-output", daemon=True)
        self._thread.start()

    def _drain(self, descriptor: int) -> None:
        held = 0
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            while part := stream.read(1 << 14):
                with self._lock:
                    self._tail.append(part)
                    held += len(part)
                    while held > _TAIL_BYTES and len(self._tail) > 1:
                        held -= len(self._tail.popleft())

    def text(self) -> str:
        """Return what is held, decoded; foreign text, not yet escaped."""
        with self._lock:
            return b"".join(self._tail).decode("utf-8", "replace")

    def close(self) -> None:
        """Wait for the end of the stream, which comes when the last process that held it is gone."""
        self._thread.join(timeout=5)
