"""A query is understood, and what was understood is shown."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from kb.retrieval.query import understand


def test_facets_are_read_from_a_phrase(connection: sqlite3.Connection) -> None:
    facets = understand(connection, "NVFP4 MoE grouped GEMM").facets
    assert facets["dtype"] == ("nvfp4",)
    assert facets["operator"][0] == "moe_grouped_gemm_nvfp4"
    assert "moe" in facets["family"]


def test_every_synonym_that_was_added_is_shown(connection: sqlite3.Connection) -> None:
    shown = understand(connection, "fp4 rms norm").expansions
    assert "fp4 → nvfp4" in shown
    assert "rms norm → rmsnorm" in shown
    assert "fp4 → mxfp4 (also)" in shown


def test_what_was_said_itself_is_no_expansion(connection: sqlite3.Connection) -> None:
    assert not [line for line in understand(connection, "rmsnorm").expansions if line.endswith("→ rmsnorm")]


def test_function_words_are_not_looked_for(connection: sqlite3.Connection) -> None:
    assert understand(connection, "how do I make the rmsnorm faster").terms == ("make", "rmsnorm", "faster")


def test_function_words_alone_are_looked_for_all_the_same(connection: sqlite3.Connection) -> None:
    assert understand(connection, "how to").terms == ("how", "to")


def test_a_repeated_phrase_counts_once(connection: sqlite3.Connection) -> None:
    assert len(understand(connection, "rmsnorm rms norm rms-norm rmsnorm").concepts) == 1


def test_agreement_is_a_share_of_the_concepts(connection: sqlite3.Connection) -> None:
    read = understand(connection, "rmsnorm h100")
    none: frozenset[str] = frozenset()
    assert read.agreement(none, none) == 0.0
    assert 0.5 < read.agreement(frozenset({"rmsnorm"}), none) < 1.0
    assert read.agreement(frozenset({"rmsnorm", "h100"}), none) == 1.0
    assert read.agreement(frozenset({"rmsnorm"}), none) < read.agreement(frozenset({"rmsnorm", "hopper"}), none) < 1.0


def test_what_is_only_mentioned_agrees_less(connection: sqlite3.Connection) -> None:
    read = understand(connection, "rmsnorm")
    both = frozenset({"rmsnorm"})
    assert 0.0 < read.agreement(frozenset(), both) < read.agreement(both, frozenset())


def test_two_words_mean_something_together(connection: sqlite3.Connection) -> None:
    read = understand(connection, "nvfp4 for our experts")
    assert "moe_grouped_gemm_nvfp4" in read.facets["operator"]
    assert "moe + nvfp4 → moe_grouped_gemm_nvfp4" in read.expansions


def test_a_misspelt_word_is_read_and_the_reading_is_shown(connection: sqlite3.Connection) -> None:
    read = understand(connection, "paged attenton")
    assert read.spelling == (("attenton", "attention"),)
    assert "attenton → attention (spelling)" in read.expansions
    assert "paged_attention_decode" in read.facets["operator"]


def test_a_word_that_entries_have_is_not_misspelt(connection: sqlite3.Connection) -> None:
    assert understand(connection, "prose about shifts").spelling == ()


def test_a_word_of_the_lexicon_is_no_misspelling_of_its_plural(connection: sqlite3.Connection) -> None:
    # Both "wrong output" and "outputs wrong" are terms, and no entry here has either word.
    assert understand(connection, "output").spelling == ()


def test_a_pasted_log_is_cut(connection: sqlite3.Connection) -> None:
    assert len(understand(connection, "word " + " ".join(f"w{n}" for n in range(10_000))).terms) <= 64


@pytest.fixture
def copy(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Return a catalogue that can be changed."""
    with closing(sqlite3.connect(":memory:")) as made:
        connection.backup(made)
        yield made


def test_words_of_the_lexicon_are_kept_for_that_lexicon_alone(copy: sqlite3.Connection) -> None:
    assert understand(copy, "paged attenton").spelling == (("attenton", "attention"),)
    assert understand(copy, "zzblip").spelling == ()
    sql = "INSERT INTO lexicon (term, facet, canonical, weight) VALUES ('zzblop', 'operator', 'zzblop', 1.0)"
    copy.execute(sql)
    assert understand(copy, "zzblip").spelling == ()  # the same lexicon, as its digest says
    copy.execute("UPDATE meta SET value = 'another' WHERE key = 'lexicon'")
    assert understand(copy, "zzblip").spelling == (("zzblip", "zzblop"),)


def test_without_a_digest_nothing_of_the_lexicon_is_kept(copy: sqlite3.Connection) -> None:
    copy.execute("DELETE FROM meta WHERE key = 'lexicon'")
    assert understand(copy, "zzblip").spelling == ()
    sql = "INSERT INTO lexicon (term, facet, canonical, weight) VALUES ('zzblop', 'operator', 'zzblop', 1.0)"
    copy.execute(sql)
    assert understand(copy, "zzblip").spelling == (("zzblip", "zzblop"),)


def test_agreement_is_the_same_whether_concepts_were_weighed_before_or_not(connection: sqlite3.Connection) -> None:
    read = understand(connection, "nvfp4 moe grouped gemm on a B200, split k")
    bare = read.with_(weighed=())
    topics, mentions = frozenset({"moe", "b200"}), frozenset({"split_k", "nvfp4"})
    assert 0.0 < read.agreement(topics, mentions) == bare.agreement(topics, mentions) < 1.0
