"""Frames come out of a stream as they went in, however it is cut; anything else is refused."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.validators.runtime.comm import frames
from kb.validators.runtime.comm.frames import Frame, FrameError, Parser

BYTES = st.binary(max_size=64)
FRAMES = st.builds(
    Frame,
    op=st.integers(0, 255),
    ident=st.integers(0, 2**32 - 1),
    peer=st.integers(0, 255),
    word=st.integers(0, 2**16 - 1),
    first=st.integers(0, 2**64 - 1),
    second=st.integers(0, 2**64 - 1),
    payload=BYTES,
)


@given(sent=st.lists(FRAMES, max_size=5), seed=st.integers(0, 1000))
def test_a_stream_may_be_cut_anywhere(sent: list[Frame], seed: int) -> None:
    stream = b"".join(one.head() + bytes(one.payload) for one in sent)
    parser, dice, found = Parser(), random.Random(seed), []  # noqa: S311
    while stream:
        size = dice.randint(1, max(1, len(stream)))
        found += parser.feed(stream[:size])
        stream = stream[size:]
    assert found == sent


def test_a_frame_that_says_it_is_huge_is_refused_before_it_is_held() -> None:
    head = frames.HEADER.pack(frames.DATA, 0, 0, 1, 0, 0, frames.LIMIT_BYTES + 1)
    with pytest.raises(FrameError, match="bytes"):
        Parser().feed(head)


@given(parts=st.lists(BYTES, max_size=6))
def test_packed_parts_come_apart_again(parts: list[bytes]) -> None:
    assert frames.unpacked(frames.packed(parts)) == parts


@given(data=BYTES)
def test_no_bytes_make_unpacking_raise_anything_but_a_frame_error(data: bytes) -> None:
    try:
        parts = frames.unpacked(data)
    except FrameError:
        return
    assert frames.packed(parts) == data


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 7, (1 << 40).to_bytes(8, "big"), (2).to_bytes(8, "big") + (1 << 60).to_bytes(8, "big") * 2],
)
def test_parts_with_impossible_sizes_are_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        frames.unpacked(data)
