"""Meaning finds what words miss, inside the same scope, and changes nothing where it has nothing to say."""

import sqlite3
from pathlib import Path

import pytest

from kb.config import Root
from kb.errors import RetrievalError
from kb.models.hit import Answer
from kb.retrieval import filters, retriever, vectors
from kb.retrieval.embed import Space
from kb.retrieval.hybrid import Dense, search_hybrid
from kb.retrieval.minilm import OnnxMiniLM
from kb.service.embedding import ensure_vectors

PARAPHRASE = "normalisation with every row held in registers"


@pytest.fixture(scope="module")
def embedder() -> OnnxMiniLM:
    return OnnxMiniLM(resident=True)


@pytest.fixture(scope="module")
def dense(base: Path, catalogue_file: Path, embedder: OnnxMiniLM) -> Dense:
    assert catalogue_file.is_file()
    return Dense(embedder, ensure_vectors(Root(base), embedder=embedder))


def ask(
    connection: sqlite3.Connection,
    dense: Dense,
    query: str,
    *,
    weight: float = 0.2,
    limit: int = 10,
    **scope: str | bool,
) -> Answer:
    made = filters.make(connection, **scope)  # type: ignore[arg-type]
    return search_hybrid(connection, query, scope=made, limit=limit, dense=dense, weight=weight)


def ids(answer: Answer) -> list[str]:
    return [hit.id for hit in answer.hits]


def test_words_that_no_entry_has_find_by_meaning_and_say_so(connection: sqlite3.Connection, dense: Dense) -> None:
    bare = retriever.search(connection, "gibberishword abacus GPU chip", scope=filters.make(connection), limit=5)
    assert not bare.hits
    answer = ask(connection, dense, "speeding up large language model token output")
    assert answer.hits
    assert any(reason.startswith("near in meaning, cosine 0.") for hit in answer.hits for reason in hit.why)


def test_a_paraphrase_finds_its_kernel(connection: sqlite3.Connection, dense: Dense) -> None:
    assert ids(ask(connection, dense, PARAPHRASE))[0] == "kernel/rmsnorm/row"


def test_what_is_near_nothing_finds_nothing(connection: sqlite3.Connection, dense: Dense) -> None:
    answer = ask(connection, dense, "xyzzy plugh quux")
    assert not answer.hits
    assert answer.empty_because is not None


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ({"kind": "technique"}, {"technique/softmax/two-pass"}),
        ({"operator": "moe"}, {"kernel/moe_grouped_gemm_nvfp4/in-register", "kernel/moe_grouped_gemm_nvfp4/native"}),
        ({"dtype": "fp16"}, {"kernel/rmsnorm/row"}),
        ({"outcome": "regression"}, {"technique/softmax/two-pass"}),
    ],
)
def test_meaning_stays_inside_the_scope(
    connection: sqlite3.Connection, dense: Dense, scope: dict[str, str], allowed: set[str]
) -> None:
    for query in (PARAPHRASE, "mixture of experts in four bits", "slower than expected"):
        assert set(ids(ask(connection, dense, query, weight=1.0, **scope))) <= allowed  # type: ignore[arg-type]


def test_withdrawn_entries_are_shown_only_when_asked_for(connection: sqlite3.Connection, dense: Dense) -> None:
    assert "kernel/rmsnorm/old" not in ids(ask(connection, dense, PARAPHRASE, weight=1.0))
    assert "kernel/rmsnorm/old" in ids(ask(connection, dense, PARAPHRASE, weight=1.0, withdrawn=True))


def test_without_weight_it_is_the_bare_tier(connection: sqlite3.Connection, dense: Dense) -> None:
    for query in ("nvfp4 moe grouped gemm", "rmsnorm", PARAPHRASE):
        bare = retriever.search(connection, query, scope=filters.make(connection), limit=10)
        mixed = ask(connection, dense, query, weight=0.0)
        assert mixed.hits == bare.hits


def test_without_weight_meaning_answers_where_words_find_nothing(connection: sqlite3.Connection, dense: Dense) -> None:
    query = "deep learning"
    assert not retriever.search(connection, query, scope=filters.make(connection), limit=10).hits
    answer = ask(connection, dense, query, weight=0.0)
    assert answer.hits
    assert all(any(reason.startswith("near in meaning") for reason in hit.why) for hit in answer.hits)


def test_the_same_query_has_the_same_answer(connection: sqlite3.Connection, dense: Dense) -> None:
    first, second = (ask(connection, dense, "fp4 experts on hopper", device="H100") for _ in range(2))
    assert first.hits == second.hits
    assert all(0.0 <= hit.score <= 1.0 for hit in first.hits)


def test_an_index_of_another_model_is_refused(
    connection: sqlite3.Connection, embedder: OnnxMiniLM, tmp_path: Path
) -> None:
    other = Space("other", 384, (("model", "01"),), "by hand")
    vector = embedder.embed(["text"])[0]
    index = vectors.save(tmp_path, other, {"kernel/rmsnorm/row": ("d", vector)})
    with pytest.raises(RetrievalError, match="made by other"):
        ask(connection, Dense(embedder, index), PARAPHRASE)


@pytest.mark.parametrize("query", ["", "  \n", "\0", "\ud800", "'; DROP TABLE entry; --", "NEAR(a b)", "x" * 100_000])
def test_hostile_queries_are_only_words(connection: sqlite3.Connection, dense: Dense, query: str) -> None:
    if not query.strip():
        with pytest.raises(RetrievalError, match="empty"):
            ask(connection, dense, query)
    else:
        assert isinstance(ask(connection, dense, query), Answer)
    assert filters.count(connection) == 6


def test_ids_that_the_catalogue_lacks_are_passed_over(
    connection: sqlite3.Connection, embedder: OnnxMiniLM, tmp_path: Path
) -> None:
    made = embedder.embed([PARAPHRASE, PARAPHRASE])
    rows = {"kernel/gone/away": ("d", made[0]), "kernel/rmsnorm/row": ("d", made[1])}
    index = vectors.save(tmp_path, embedder.space, rows)
    found = ids(ask(connection, Dense(embedder, index), PARAPHRASE, weight=1.0))
    assert found[0] == "kernel/rmsnorm/row"
    assert "kernel/gone/away" not in found
