"""Text is cut the same way everywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.retrieval import words

ANYTHING = st.text(st.characters(codec=None))
"""Lone surrogates included, as a shell can hand them over."""


def test_names_and_numbers_stay_whole() -> None:
    assert words.compounds("sm_90, split-k: qwen3.6-35b e2m1 3.6 tokens/s") == [
        "sm_90", "split-k", "qwen3.6-35b", "e2m1", "3.6", "tokens/s",
    ]  # fmt: skip


def test_a_dot_splits_names_and_not_numbers() -> None:
    assert words.words("torch.multinomial qwen3.6 .item() tcgen05.mma 3.8.1") == [
        "torch", "multinomial", "qwen3.6", "item", "tcgen05", "mma", "3.8.1",
    ]  # fmt: skip


def test_a_size_stays_with_its_axis() -> None:
    assert words.compounds("moe e=256,n=512") == ["moe", "e=256", "n=512"]


def test_spellings_of_a_phrase_have_one_normal_form() -> None:
    assert {words.normal(spelling) for spelling in ("Split-K", "split_k", "SPLIT  K", "split/k")} == {"split k"}


def test_a_canonical_word_is_one_token() -> None:
    assert words.token("sam3.1") == "sam3_1"
    assert words.token("qwen3.6-35b-a3b") == "qwen3_6_35b_a3b"


def test_the_longest_phrase_wins_and_phrases_do_not_overlap() -> None:
    table = dict.fromkeys(["moe", "grouped gemm", "moe grouped gemm", "gemm"], 1)
    found = words.longest(["fast", "moe", "grouped", "gemm", "gemm"], table)
    assert [(start, length, phrase) for start, length, phrase, _ in found] == [
        (1, 3, "moe grouped gemm"),
        (4, 1, "gemm"),
    ]


def test_a_plural_is_found_by_its_singular() -> None:
    assert [phrase for *_, phrase, _ in words.longest(["grouped", "gemms"], {"grouped gemm": 1})] == ["grouped gemm"]


@given(ANYTHING)
def test_any_text_can_be_cut_and_the_normal_form_is_stable(text: str) -> None:
    normal = words.normal(text)
    assert words.normal(normal) == normal
    normal.encode("utf-8")


@pytest.mark.parametrize(
    ("word", "other"),
    [("groued", "grouped"), ("attenton", "attention"), ("sofmtax", "softmax"), ("kernal", "kernel"), ("gemmm", "gemm")],
)
def test_one_wrong_letter_is_near(word: str, other: str) -> None:
    assert words.is_near(word, other)
    assert words.is_near(other, word)


@pytest.mark.parametrize(("word", "other"), [("same", "same"), ("norm", "form"), ("rope", "rapid"), ("", "a")])
def test_more_than_that_is_not(word: str, other: str) -> None:
    assert not words.is_near(word, other)


def test_a_plural_is_its_singular() -> None:
    assert words.stems("Kernels across tokens, a loss") == {"kernel", "across", "token", "a", "loss"}


@given(ANYTHING, ANYTHING)
def test_nearness_has_no_direction(word: str, other: str) -> None:
    assert words.is_near(word, other) == words.is_near(other, word)


@given(ANYTHING, ANYTHING)
def test_shared_words_are_those_of_both_cut_apart(query: str, text: str) -> None:
    asked = words.stems(query)
    for one in (text, f"{text} {query}s", f"{query} {text}"):
        assert words.shared(asked, one) == len(asked & words.stems(one))


@pytest.mark.parametrize(
    "forms",
    [
        ("capture", "captured", "captures", "capturing"),
        ("normalise", "normalize", "normalised", "normalization", "normalising"),
        ("fragment", "fragments", "fragmentation"),
        ("spill", "spills", "spilled", "spilling"),
        ("split", "splits", "splitting"),
    ],
)
def test_forms_of_a_word_have_one_root(forms: tuple[str, ...]) -> None:
    assert len({words.root(form) for form in forms}) == 1


@pytest.mark.parametrize("name", ["h100", "bf16", "qwen3.6", "sm_90", "moe", "gemm", "rope", "kv", "nms", ""])
def test_names_are_their_own_roots(name: str) -> None:
    assert words.root(name) == name


@given(ANYTHING)
def test_every_word_has_a_root_that_is_its_beginning(text: str) -> None:
    for word in words.words(words.clean(text)):
        assert words.root(word)
        assert word.startswith(words.root(word))


NOTHING: frozenset[str] = frozenset()


def test_the_nearest_question_decides_and_further_words_cost() -> None:
    asked = words.stems("idle gaps between short kernels inside captured graphs")
    same = "idle gap between short kernel inside capturing graph"
    assert words.likeness(asked, ["else", same], without=NOTHING) == pytest.approx(1.0)
    near = words.likeness(asked, ["something else", f"{same} and more"], without=NOTHING)
    far = words.likeness(asked, ["gaps in a long list of other things between graphs"], without=NOTHING)
    assert 0.0 < far < near < 1.0


def test_words_that_say_nothing_are_not_compared() -> None:
    asked = words.stems("erf slow vit mlp")
    said = words.likeness(asked, ["why is erf so slow"], without=frozenset({"why", "is", "so"}))
    assert said > words.likeness(asked, ["why is erf so slow"], without=NOTHING) > 0.0


def test_the_longer_a_query_the_more_it_is_a_question() -> None:
    lengths = ("erf", "erf slow", "erf slow vit", "erf slow vit mlp", "erf slow vit mlp on old gpu here")
    alike = [words.likeness(words.stems(text), [text], without=NOTHING) for text in lengths]
    assert alike[:2] == [0.0, 0.0]
    assert 0.0 < alike[2] < alike[3] < alike[4] == pytest.approx(1.0)


def test_nothing_is_like_no_question() -> None:
    asked = words.stems("tanh of large numbers overflows")
    assert words.likeness(asked, [], without=NOTHING) == 0.0
    assert words.likeness(NOTHING, ["why is erf slow"], without=NOTHING) == 0.0
    assert words.likeness(asked, ["", "?!"], without=NOTHING) == 0.0
    assert words.likeness(asked, ["why is erf slow"], without=NOTHING) == 0.0


@given(st.lists(ANYTHING, max_size=4), ANYTHING)
def test_likeness_is_a_share(questions: list[str], query: str) -> None:
    assert 0.0 <= words.likeness(words.stems(query), questions, without=NOTHING) <= 1.0 + 1e-12
