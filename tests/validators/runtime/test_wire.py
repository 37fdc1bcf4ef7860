"""Messages between judge and worker: sizes are checked, nothing is unpickled, nothing blocks for ever."""

import json
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.validators.runtime import wire


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    yield left, right
    left.close()
    right.close()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_a_message_arrives_as_it_was_sent(message: dict[str, object]) -> None:
    left, right = socket.socketpair()
    with left, right:
        wire.send(left, message)
        assert wire.receive(right, limit_s=1) == message


@given(st.binary(max_size=200))
def test_garbage_is_an_error_of_the_protocol_and_nothing_else(data: bytes) -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(data)
        left.close()
        with pytest.raises(wire.WireError):
            wire.receive(right, limit_s=1)


@pytest.mark.parametrize(
    "body", [b"[1]", b"null", b"{", b"\xff\xfe", b"cos\nsystem\n(S'id'\ntR.", b'{"a":' * 5000 + b"1" + b"}" * 5000]
)
def test_a_body_that_is_no_object_is_refused(body: bytes, ends: tuple[socket.socket, socket.socket]) -> None:
    ends[0].sendall(struct.pack("!I", len(body)) + body)
    with pytest.raises(wire.WireError) as caught:
        wire.receive(ends[1], limit_s=1)
    assert caught.value.kind == "malformed"


def test_a_huge_announcement_is_refused_before_anything_is_read(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[0].sendall(struct.pack("!I", 2**32 - 1))
    with pytest.raises(wire.WireError) as caught:
        wire.receive(ends[1], limit_s=1)
    assert caught.value.kind == "malformed"


def test_silence_is_a_time_out(ends: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(wire.WireError) as caught:
        wire.receive(ends[1], limit_s=0.05)
    assert caught.value.kind == "timed_out"


def test_half_a_message_is_a_time_out(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[0].sendall(struct.pack("!I", 100) + b'{"a"')
    with pytest.raises(wire.WireError) as caught:
        wire.receive(ends[1], limit_s=0.05)
    assert caught.value.kind == "timed_out"


def test_not_a_number_does_not_travel(ends: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(ValueError, match="JSON"):
        wire.send(ends[0], {"x": float("nan")})


def test_what_is_sent_is_plain_json(ends: tuple[socket.socket, socket.socket]) -> None:
    wire.send(ends[0], {"op": "call"})
    header = ends[1].recv(4)
    assert json.loads(ends[1].recv(struct.unpack("!I", header)[0])) == {"op": "call"}


def test_a_channel_that_was_closed_here_is_closed_too(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[0].close()
    with pytest.raises(wire.WireError, match="closed"):
        wire.receive(ends[0], limit_s=1)
    with pytest.raises(wire.WireError, match="closed"):
        wire.send(ends[0], {})
