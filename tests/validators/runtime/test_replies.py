"""Replies are foreign: whatever they hold, reading them ends in values of the right types or in one error."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.validators.runtime import replies

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("error", "outputs", "plain", "type", "message", "dtype", "shape", "device", "offset", "size_bytes", "calls")
CLAIM = st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, ANYTHING))
REPLY = st.fixed_dictionaries(
    {}, optional={"error": ANYTHING | CLAIM, "outputs": ANYTHING | st.lists(CLAIM, max_size=3), "calls": ANYTHING}
)


@given(REPLY)
def test_no_reply_is_an_error_of_the_reader(reply: dict[str, object]) -> None:
    with contextlib.suppress(replies.ForgedReplyError):
        text = replies.failure(reply)
        assert text is None or (text.isprintable() and len(text) <= 501)
    with contextlib.suppress(replies.ForgedReplyError):
        for claim in replies.claims(reply):
            assert isinstance(claim.plain, bool)
            assert all(type(one) is int and one >= 0 for one in (claim.offset, claim.size_bytes, *claim.shape))
            assert isinstance(claim.dtype, str)
    for read in (replies.names, replies.counts, replies.groups):
        with contextlib.suppress(replies.ForgedReplyError):
            read(reply, "calls")


GOOD = {
    "plain": True,
    "type": "Tensor",
    "dtype": "float32",
    "shape": [2],
    "device": "cpu",
    "offset": 0,
    "size_bytes": 8,
}


def test_a_true_claim_is_read() -> None:
    (claim,) = replies.claims({"outputs": [GOOD]})
    assert (claim.dtype, claim.shape, claim.size_bytes) == ("float32", (2,), 8)


@pytest.mark.parametrize(
    "change",
    [
        {"offset": -1}, {"offset": True}, {"offset": 1.0}, {"offset": 10**30}, {"shape": [True]}, {"shape": 2},
        {"dtype": []}, {"plain": 1}, {"size_bytes": "8"}, {"device": None},
    ],
)  # fmt: skip
def test_a_claim_of_another_form_is_forged(change: dict[str, object]) -> None:
    with pytest.raises(replies.ForgedReplyError):
        replies.claims({"outputs": [GOOD | change]})
