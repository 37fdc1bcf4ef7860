"""How a rank and the judge's switch talk: fixed headers and raw payload over a socket pair, sizes checked.

Every byte that goes from one rank to another passes through the switch, which is the judge's. So what a scheme moves
is counted where the scheme cannot reach, and a rank can be told late, or never, what another one sent too early.
"""

import struct
from dataclasses import dataclass

# From a rank to the switch.
SEND, RECV, DATA, COLLECT, PUT, SIGNAL, FENCE, GET, WAIT = range(1, 10)
# From the switch to a rank.
GO, DONE, FAILED, ABORT = range(20, 24)

HEADER = struct.Struct("!BBHIQQQ")
"""op, peer, word, ident, first, second, bytes of payload."""

KINDS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter", "barrier",
)  # fmt: skip
"""Collectives of the library, in the order of their numbers on the wire."""

LIMIT_BYTES = 256 << 20
"""Longest payload of one frame."""


class FrameError(Exception):
    """Bytes that are no frame, or more of them than anybody needs."""

    def __init__(self, detail: str, *, reason: str = "forged_protocol") -> None:
        super().__init__(detail)
        self.reason = reason
        """A code of ``report.REASONS``."""


@dataclass(frozen=True)
class Frame:
    """One message on the way between a rank and the switch."""

    op: int
    ident: int = 0
    """Number of the rank's operation that this is about."""
    peer: int = 0
    """The other rank."""
    word: int = 0
    """Slot of a signal, or kind of a collective."""
    first: int = 0
    """Tag, offset, or bit mask of the members of a group."""
    second: int = 0
    """Bytes that are announced, or the number of a collective."""
    payload: bytes | bytearray | memoryview = b""

    def head(self) -> bytes:
        """Return the header's bytes."""
        size = len(self.payload)
        return HEADER.pack(self.op, self.peer, self.word, self.ident, self.first, self.second, size)


class Parser:
    """Makes frames out of a stream that comes in pieces."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._size: int | None = None

    def feed(self, piece: bytes) -> list[Frame]:
        """Take the next piece.

        Returns:
            The frames that are complete now.

        Raises:
            FrameError: The stream is no stream of frames.
        """
        self._held += piece
        found = []
        while (frame := self._next()) is not None:
            found.append(frame)
        return found

    def _next(self) -> Frame | None:
        if self._size is None:
            if len(self._held) < HEADER.size:
                return None
            self._size = HEADER.unpack_from(self._held)[-1]
            if self._size > LIMIT_BYTES:
                raise FrameError(f"a frame of {self._size} bytes")
        whole = HEADER.size + self._size
        if len(self._held) < whole:
            return None
        op, peer, word, ident, first, second, _ = HEADER.unpack_from(self._held)
        payload = bytes(memoryview(self._held)[HEADER.size : whole])
        del self._held[:whole]
        self._size = None
        return Frame(op, ident, peer, word, first, second, payload)


def packed(parts: list[bytes]) -> bytes:
    """Join byte strings so that they can be told apart again."""
    sizes = struct.pack(f"!{len(parts) + 1}Q", len(parts), *map(len, parts))
    return sizes + b"".join(parts)


def unpacked(payload: bytes | bytearray | memoryview) -> list[bytes]:
    """Take apart what ``packed`` joined.

    Raises:
        FrameError: It is nothing that ``packed`` made.
    """
    try:
        (count,) = struct.unpack_from("!Q", payload)
        if count > 256:
            raise FrameError(f"{count} parts")
        sizes = struct.unpack_from(f"!{count}Q", payload, 8)
    except struct.error as error:
        raise FrameError("parts without sizes") from error
    offset, found = 8 * (count + 1), []
    if offset + sum(sizes) != len(payload):
        raise FrameError("parts of other sizes than they say")
    for size in sizes:
        found.append(bytes(payload[offset : offset + size]))
        offset += size
    return found
