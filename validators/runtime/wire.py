"""How judge and worker talk: length-prefixed JSON over a socket pair; never pickles, sizes checked.

Tensors do not travel here: they lie in the shared arena, and a message only says where.
"""

import json
import socket
import struct
import time
from typing import Any

LIMIT_BYTES = 1 << 20
"""Largest message that is read; a longer one is a broken protocol."""

DEPTH = 12
"""Deepest nesting of a message."""

_HEADER = struct.Struct("!I")


class WireError(Exception):
    """The other side closed, was too slow, or sent something that is no message."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
        """``closed``, ``timed_out`` or ``malformed``."""


def send(channel: socket.socket, message: dict[str, Any]) -> None:
    """Send one message.

    Raises:
        WireError: The other side is gone, or does not read.
    """
    data = json.dumps(message, allow_nan=False).encode()
    if len(data) > LIMIT_BYTES:
        raise WireError("malformed", "a message is too long to send")
    try:
        channel.sendall(_HEADER.pack(len(data)) + data)
    except TimeoutError as error:
        raise WireError("timed_out", "the other side does not read") from error
    except OSError as error:
        raise WireError("closed", str(error)) from error


def receive(channel: socket.socket, *, limit_s: float | None) -> dict[str, Any]:
    """Receive one message.

    Args:
        channel: A connected stream socket.
        limit_s: Seconds for the whole message, None to wait for ever.

    Returns:
        A JSON object.

    Raises:
        WireError: Closed, too slow, too long, or not a JSON object.
    """
    deadline = None if limit_s is None else time.monotonic() + limit_s
    (size,) = _HEADER.unpack(_exactly(channel, _HEADER.size, deadline))
    if size > LIMIT_BYTES:
        raise WireError("malformed", f"a message of {size} bytes")
    data = _exactly(channel, size, deadline)
    if data.count(b"[") + data.count(b"{") > 20_000:
        raise WireError("malformed", "too many nested values")
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise WireError("malformed", "not JSON") from error
    if not isinstance(message, dict):
        raise WireError("malformed", "not a JSON object")
    return message


def _exactly(channel: socket.socket, size: int, deadline: float | None) -> bytes:
    parts: list[bytes] = []
    missing = size
    while missing:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise WireError("timed_out")
        try:
            channel.settimeout(left)
            part = channel.recv(min(missing, 1 << 16))
        except TimeoutError as error:
            raise WireError("timed_out") from error
        except OSError as error:
            raise WireError("closed", str(error)) from error
        if not part:
            raise WireError("closed")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
