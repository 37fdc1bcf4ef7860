"""A worker answers for its results before it hands them over, and is held to it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kb.validators.runtime import commitment
from kb.validators.runtime.commitment import Commitment, factors, new_key

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int64, torch.uint8, torch.bool)


def handed(one: torch.Tensor) -> bytes:
    """Return the bytes as a worker hands them over."""
    flat = one.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0, 4), (4096,), (16384,), (257, 129)])
def test_who_hands_over_what_he_answered_for_keeps_his_word(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    result = torch.randint(0, 2, shape).to(dtype)
    key = new_key()
    answered = Commitment(key, {3: tuple(commitment.answer([result, result.t() if result.ndim == 2 else result],
                                                           factors(key), "cpu"))})  # fmt: skip
    second = handed(result.t()) if result.ndim == 2 else handed(result)
    assert answered.broken({3: (handed(result), second), 4: (b"other",)}) is None


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 40_000), place=st.integers(0, 1 << 30), flip=st.integers(1, 255))
def test_a_single_changed_byte_is_seen(size: int, place: int, flip: int) -> None:
    result = torch.randint(0, 256, (size,), dtype=torch.uint8)
    key = new_key()
    answered = Commitment(key, {0: tuple(commitment.answer([result], factors(key), "cpu"))})
    data = bytearray(handed(result))
    data[place % size] ^= flip
    assert answered.broken({0: (bytes(data),)}) == 0


def test_results_that_changed_places_are_seen() -> None:
    result = torch.arange(3 * 4096, dtype=torch.int32)
    key = new_key()
    answered = Commitment(key, {0: tuple(commitment.answer([result], factors(key), "cpu"))})
    rows = result.view(3, 4096)[[1, 0, 2]]
    pairs = result.view(-1, 2).flip(1)
    assert answered.broken({0: (handed(rows),)}) == 0
    assert answered.broken({0: (handed(pairs),)}) == 0


def test_one_result_more_or_less_is_seen() -> None:
    result = torch.ones(7)
    key = new_key()
    answered = Commitment(key, {5: tuple(commitment.answer([result, result], factors(key), "cpu"))})
    assert answered.broken({5: (handed(result),)}) == 5


def test_zeros_of_another_length_are_told_apart_by_their_form_and_not_by_their_number() -> None:
    key = factors(new_key())
    assert commitment.answer([torch.zeros(5), torch.zeros(9), torch.zeros(0)], key, "cpu") == ["0", "0", "0"]


def test_what_is_no_tensor_of_the_device_has_no_number() -> None:
    key = factors(new_key())
    found = commitment.answer([None, 3, torch.ones(2, device="meta"), torch.ones(2)], key, "cpu")
    assert found[:3] == ["", "", ""]
    assert int(found[3]) != 0


def test_another_key_gives_another_number() -> None:
    result = torch.randn(100)
    first, second = (commitment.answer([result], factors(new_key()), "cpu") for _ in range(2))
    assert first != second
