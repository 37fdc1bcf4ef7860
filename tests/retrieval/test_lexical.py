"""Nothing in a query is syntax, and large catalogues stay fast."""

import sqlite3

import pytest

from kb.catalogue import CREATE_TEXT, ENTRY, LEXICON, META, TEXT
from kb.retrieval import lexical
from kb.retrieval.query import Understanding, understand


def matches(connection: sqlite3.Connection, text: str, *, limit: int = 50) -> dict[int, float]:
    read = understand(connection, text)
    return lexical.search(connection, read, condition="1", parameters=(), limit=limit)


@pytest.mark.parametrize(
    "text",
    ['"', '""', "AND", "NOT x", "a NEAR(b)", "title:x", "{a b}: c", "^x", "x*", "-x", "a + b", "(", "'; DROP", "\0"],
)
def test_operators_of_the_query_language_are_words(connection: sqlite3.Connection, text: str) -> None:
    matches(connection, text)


def test_an_underscore_finds_the_words_apart(connection: sqlite3.Connection) -> None:
    assert matches(connection, "decoded_in_registers")


def test_scores_are_above_zero_and_no_more_than_asked(connection: sqlite3.Connection) -> None:
    found = matches(connection, "rmsnorm moe softmax", limit=2)
    assert 1 <= len(found) <= 2
    assert all(score > 0 for score in found.values())


def test_few_are_the_best_of_many(connection: sqlite3.Connection) -> None:
    many = matches(connection, "moe decode", limit=50)
    few = matches(connection, "moe decode", limit=3)
    assert list(few.items()) == list(many.items())[:3]


def test_an_understanding_without_words_matches_nothing(connection: sqlite3.Connection) -> None:
    assert lexical.search(connection, Understanding((), ()), condition="1", parameters=(), limit=5) == {}


@pytest.fixture(scope="module")
def large() -> sqlite3.Connection:
    """A catalogue in memory, with a word in every entry, one in every second and one in a single entry."""
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE {ENTRY} (id TEXT)")
    connection.execute(f"CREATE TABLE {LEXICON} (term TEXT, facet TEXT, canonical TEXT, weight REAL)")
    connection.execute(f"CREATE TABLE {META} (key TEXT, value TEXT)")
    connection.execute(CREATE_TEXT)
    rows = range(1, lexical.LARGE + 101)
    into_entries = f"INSERT INTO {ENTRY} (rowid, id) VALUES (?, ?)"  # noqa: S608
    into_text = f"INSERT INTO {TEXT} (rowid, title, tags, facets, text) VALUES (?, ?, '', '', '')"  # noqa: S608
    connection.executemany(into_entries, [(n, f"e{n:06}") for n in rows])
    connection.executemany(into_text, [(n, "every" + " half" * (n % 2) + " single" * (n == 77)) for n in rows])
    return connection


def test_a_frequent_word_does_not_select_where_a_rare_one_can(large: sqlite3.Connection) -> None:
    assert list(matches(large, "every half single")) == [77]


def test_frequent_words_alone_select_together(large: sqlite3.Connection) -> None:
    found = matches(large, "half every", limit=10)
    assert len(found) == 10
    assert all(rowid % 2 for rowid in found)


def test_a_word_that_nobody_has_finds_nothing(large: sqlite3.Connection) -> None:
    assert matches(large, "absent") == {}
