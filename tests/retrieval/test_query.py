"""A query is understood, and what was understood is shown."""

import sqlite3

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
    assert read.agreement(frozenset()) == 0.0
    assert read.agreement(frozenset({"rmsnorm"})) == 0.5
    assert read.agreement(frozenset({"rmsnorm", "h100"})) == 1.0
    assert 0.5 < read.agreement(frozenset({"rmsnorm", "hopper"})) < 1.0


def test_a_pasted_log_is_cut(connection: sqlite3.Connection) -> None:
    assert len(understand(connection, "word " + " ".join(f"w{n}" for n in range(10_000))).terms) <= 64
