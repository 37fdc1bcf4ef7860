"""How text is cut into words, for documents and queries alike. Standard library only."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    Found = TypeVar("Found")

MAX_PHRASE = 8
"""Longest phrase of the lexicon, in words; a test holds the data to it."""

MAX_WORDS = 64
"""Words of a query that are read; a pasted log is cut here."""

MENTIONS = "|"
"""Stands in a document's facets between what it is about and what it mentions; full-text search does not see it."""

NAME, QUESTION = 2, 8
"""Words of a query up to which it is a name and nothing is asked, and from which on it is a whole question."""

PAIR = " + "
"""Joins two canonical words that mean something together in a term of the lexicon; no phrase of a text has it."""

_WORD = re.compile(r"[^\W_]+(?:(?<=\d)\.(?=\d)[^\W_]+)*")
_COMPOUND = re.compile(r"\w+(?:[.\-+/=]\w+)*")
_ENDINGS = (
    "isations", "izations", "isation", "ization", "ations", "ation", "ising", "izing", "ised", "ized", "ise", "ize",
    "ings", "ing", "ions", "ion", "ers", "er", "ed", "es", "e", "s", "ly",
)  # fmt: skip

_OUTSIDE = re.compile(r"[^a-z0-9]+")


def clean(text: str) -> str:
    """Return lower-case text in compatibility form, without what no file of text contains (lone surrogates)."""
    if text.isascii():
        return text.lower()
    valid = text.encode("utf-8", "ignore").decode("utf-8")
    return unicodedata.normalize("NFKC", valid).lower()


def words(text: str) -> list[str]:
    """Cut clean text into words: ``sm_90`` and ``torch.topk`` give two, ``qwen3.6-35b`` gives ``qwen3.6``, ``35b``."""
    return _WORD.findall(text)


def compounds(text: str) -> list[str]:
    """Cut clean text at blanks and punctuation but not inside ``sm_90``, ``split-k``, ``3.6`` or ``tokens/s``."""
    return _COMPOUND.findall(text)


def normal(text: str) -> str:
    """Return the form in which phrases are compared: ``Split-K`` and ``split_k`` both give ``split k``."""
    return " ".join(words(clean(text)))


@lru_cache(maxsize=8192)
def token(canonical: str) -> str:
    """Return a canonical word as the one token that documents carry: ``sam3.1`` gives ``sam3_1``."""
    return _OUTSIDE.sub("_", canonical.lower()).strip("_")


@lru_cache(maxsize=4096)
def facets(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the tokens of what a document is about and of what it mentions."""
    about, _, mentioned = text.partition(MENTIONS)
    return frozenset(about.split()), frozenset(mentioned.split())


@lru_cache(maxsize=4096)
def stems(text: str) -> frozenset[str]:
    """Return the words of a text, plurals as their singulars."""
    return frozenset(
        word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
        for word in words(clean(text))
    )


@lru_cache(maxsize=8192)
def root(word: str) -> str:
    """Return a word without its ending, so that ``captured``, ``captures`` and ``capturing`` are one; names stay."""
    if not word.isalpha():
        return word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            cut = word[: -len(ending)]
            return cut[:-1] if len(cut) > 4 and cut[-1] == cut[-2] and cut[-1] not in "sl" else cut
    return word


def likeness(asked: frozenset[str], questions: Sequence[str], *, without: frozenset[str]) -> float:
    """Return how far the nearest of some questions has the words asked for and no others, 0 to 1.

    It is the cosine of both sets of words. The shorter a query, the less it is a question and the more a name, for
    which title and tags are better: up to NAME words likeness is 0, and it counts in full from QUESTION words on.

    Args:
        asked: The words of the query, cut by :func:`stems`.
        questions: Texts.
        without: Words that say nothing, in the questions; the query is without them already.
    """
    wanted = frozenset(map(root, asked))
    weight = min(1.0, (len(wanted) - NAME) / (QUESTION - NAME))
    if weight <= 0.0:
        return 0.0
    best = 0.0
    for question in questions:
        said = _roots(question, without)
        both = len(wanted & said)
        if both:
            best = max(best, both / math.sqrt(len(wanted) * len(said)))
    return weight * best


def asks(word: str, questions: Sequence[str], *, without: frozenset[str]) -> bool:
    """Tell whether one of some questions has a word.

    Args:
        word: Cut by :func:`stems` and :func:`root`.
        questions: Texts.
        without: Words that say nothing.
    """
    return any(word in _roots(question, without) for question in questions)


def asked_with(questions: Sequence[str], *, without: frozenset[str]) -> frozenset[str]:
    """Return all words that some questions have, cut as :func:`asks` compares them.

    Args:
        questions: Texts.
        without: Words that say nothing.
    """
    return frozenset().union(*(_roots(question, without) for question in questions))


@lru_cache(maxsize=4096)
def _roots(text: str, without: frozenset[str]) -> frozenset[str]:
    return frozenset(root(word) for word in stems(text) if word not in without)


def shared(asked: frozenset[str], text: str) -> int:
    """Return how many of some words, cut by :func:`stems`, a text has; without cutting all words of the text."""
    lowered = text.lower()
    likely = [word for word in asked if word in lowered] if text.isascii() else list(asked)
    if not likely:
        return 0
    found = _distinct(text)
    return sum(word in found or (len(word) > 2 and word[-1] != "s" and word + "s" in found) for word in likely)


@lru_cache(maxsize=4096)
def _distinct(text: str) -> frozenset[str]:
    return frozenset(words(clean(text)))


def is_near(word: str, other: str) -> bool:
    """Tell whether two words begin alike and differ by one letter: left out, added, changed, or two swapped."""
    if word == other or not word or not other or word[0] != other[0] or abs(len(word) - len(other)) > 1:
        return False
    start = 0
    while start < min(len(word), len(other)) and word[start] == other[start]:
        start += 1
    left, right = word[start:], other[start:]
    swapped = left[:2] == right[1::-1] and left[2:] == right[2:]
    return left[1:] == right[1:] or left[1:] == right or left == right[1:] or swapped


def pair(one: str, other: str) -> str:
    """Return the term under which two canonical words stand together, whatever their order."""
    return PAIR.join(sorted((one, other)))


def phrases(sequence: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yield start, length and text of every phrase of a sequence of words; a plural also as its singular."""
    for start in range(len(sequence)):
        for length in range(1, min(MAX_PHRASE, len(sequence) - start) + 1):
            text = " ".join(sequence[start : start + length])
            yield start, length, text
            if len(text) > 3 and text.endswith("s") and not text.endswith("ss"):
                yield start, length, text[:-1]


def longest(sequence: Sequence[str], table: Mapping[str, Found]) -> list[tuple[int, int, str, Found]]:
    """Find the known phrases of a sequence, the longest first at every place, without overlap.

    Args:
        sequence: Words in order.
        table: What is known, by phrase.

    Returns:
        Start, length, phrase and what the table has for it, in order.
    """
    best: dict[int, tuple[int, str]] = {}
    for start, length, text in phrases(sequence):
        # The phrase as written comes before its singular, so it wins at the same length.
        if text in table and length > best.get(start, (0, ""))[0]:
            best[start] = (length, text)
    found = []
    place = 0
    while place < len(sequence):
        length, text = best.get(place, (0, ""))
        if length:
            found.append((place, length, text, table[text]))
        place += max(1, length)
    return found
