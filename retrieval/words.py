"""How text is cut into words, for documents and queries alike. Standard library only."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    Found = TypeVar("Found")

MAX_PHRASE = 8
"""Longest phrase of the lexicon, in words; a test holds the data to it."""

MAX_WORDS = 64
"""Words of a query that are read; a pasted log is cut here."""

_WORD = re.compile(r"[^\W_]+(?:\.[^\W_]+)*")
_COMPOUND = re.compile(r"\w+(?:[.\-+/]\w+)*")
_OUTSIDE = re.compile(r"[^a-z0-9]+")


def clean(text: str) -> str:
    """Return lower-case text in compatibility form, without what no file of text contains (lone surrogates)."""
    valid = text.encode("utf-8", "ignore").decode("utf-8")
    return unicodedata.normalize("NFKC", valid).lower()


def words(text: str) -> list[str]:
    """Cut clean text into words: ``sm_90`` gives two, ``qwen3.6-35b`` gives ``qwen3.6`` and ``35b``."""
    return _WORD.findall(text)


def compounds(text: str) -> list[str]:
    """Cut clean text at blanks and punctuation but not inside ``sm_90``, ``split-k``, ``3.6`` or ``tokens/s``."""
    return _COMPOUND.findall(text)


def normal(text: str) -> str:
    """Return the form in which phrases are compared: ``Split-K`` and ``split_k`` both give ``split k``."""
    return " ".join(words(clean(text)))


def token(canonical: str) -> str:
    """Return a canonical word as the one token that documents carry: ``sam3.1`` gives ``sam3_1``."""
    return _OUTSIDE.sub("_", canonical.lower()).strip("_")


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
