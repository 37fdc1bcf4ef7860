"""The arena: bounded, sealed, aligned."""

import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kb.validators.runtime.arena import ALIGN, Arena, aligned, span_bytes
from kb.validators.runtime.reference import storage


def test_it_cannot_be_shrunk_under_the_judges_feet() -> None:
    arena = Arena(1 << 16)
    with pytest.raises(PermissionError):
        os.ftruncate(arena.descriptor, 0)
    arena.close()


@pytest.mark.parametrize(("offset", "size"), [(-1, 4), (0, 1 << 40), (1 << 40, 1), (0, -1)])
def test_what_lies_outside_is_refused(offset: int, size: int) -> None:
    arena = Arena(4096)
    with pytest.raises(ValueError, match="outside"):
        arena.read(offset, size)
    arena.close()


@given(st.integers(0, 1 << 40))
def test_offsets_are_aligned_upwards(offset: int) -> None:
    assert aligned(offset) % ALIGN == 0
    assert 0 <= aligned(offset) - offset < ALIGN


@given(st.lists(st.integers(0, 5), min_size=0, max_size=3), st.integers(1, 3))
def test_the_span_of_a_view_is_what_its_storage_gives(shape: list[int], gap: int) -> None:
    base = torch.arange(float(torch.Size(shape).numel() * gap)).reshape(*shape, gap)
    view = base[..., 0]
    assert len(storage(view)) == span_bytes(view.shape, view.stride(), 4)
