"""Search answers in order, inside its scope, and explains what it did and what it did not find."""

import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kb.catalogue import open_reader
from kb.config import Root
from kb.errors import EntryNotFoundError, IndexStaleError, KbError, RetrievalError
from kb.models.hit import Answer
from kb.models.vocabulary import KINDS, OUTCOMES, RUNNABLE
from kb.retrieval import browse, filters, retriever
from kb.service.indexing import ensure_index

IN_REGISTER = "kernel/moe_grouped_gemm_nvfp4/in-register"
NATIVE = "kernel/moe_grouped_gemm_nvfp4/native"
_PROPERTY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def ask(connection: sqlite3.Connection, query: str, *, limit: int = 10, **scope: str | bool) -> Answer:
    made = filters.make(connection, **scope)  # type: ignore[arg-type]
    return retriever.search(connection, query, scope=made, limit=limit)


def ids(answer: Answer) -> list[str]:
    return [hit.id for hit in answer.hits]


def test_the_kernel_is_first_for_its_name(connection: sqlite3.Connection) -> None:
    assert set(ids(ask(connection, "nvfp4 moe grouped gemm"))[:2]) == {IN_REGISTER, NATIVE}


@pytest.mark.parametrize("query", ["fp4 fused experts", "e2m1 mixture of experts", "W4A4 MoE ragged gemm"])
def test_other_words_find_the_same_kernel(connection: sqlite3.Connection, query: str) -> None:
    assert ids(ask(connection, query))[0] in (IN_REGISTER, NATIVE)


def test_a_campaign_is_found_by_what_it_achieved(connection: sqlite3.Connection) -> None:
    answer = ask(connection, "beat vllm nvfp4 single stream")
    assert answer.hits[0].id == "campaign/some-model/run"
    assert answer.hits[0].best is not None
    assert answer.hits[0].best.speedup == pytest.approx(1.9, abs=0.01)


@pytest.mark.parametrize("device", ["NVIDIA H100", "H200", "hopper"])
def test_what_needs_missing_units_is_never_shown_as_runnable(connection: sqlite3.Connection, device: str) -> None:
    answer = ask(connection, "nvfp4 moe grouped gemm fp4 matrix units", device=device)
    by_id = {hit.id: hit for hit in answer.hits}
    assert by_id[NATIVE].transfer not in RUNNABLE
    assert any("fp4_mma" in reason for reason in by_id[NATIVE].why)
    assert by_id[IN_REGISTER].transfer in RUNNABLE


def test_on_an_asked_device_what_runs_comes_before_what_does_not(connection: sqlite3.Connection) -> None:
    assert ids(ask(connection, "nvfp4 moe grouped gemm", device="H100"))[:2] == [IN_REGISTER, NATIVE]


def test_without_a_device_there_is_no_transfer(connection: sqlite3.Connection) -> None:
    assert {hit.transfer for hit in ask(connection, "moe").hits} == {None}


def test_a_device_in_the_words_is_used_and_said_but_is_no_filter(connection: sqlite3.Connection) -> None:
    answer = ask(connection, "nvfp4 moe on h100")
    assert answer.scope["device"] is None
    assert answer.facets["device"] == ("h100",)
    assert "mentions H100" in answer.notes[0]
    assert {hit.id: hit.transfer for hit in answer.hits}[NATIVE] not in RUNNABLE


def test_two_devices_in_the_words_are_no_device(connection: sqlite3.Connection) -> None:
    assert {hit.transfer for hit in ask(connection, "port nvfp4 moe from b200 to h100").hits} == {None}


def test_a_negative_result_is_found_and_marked(connection: sqlite3.Connection) -> None:
    hit = ask(connection, "two-pass softmax").hits[0]
    assert hit.outcome == "regression"
    assert hit.why[0] == "negative result: regression"


def test_withdrawn_entries_are_left_out_and_said(connection: sqlite3.Connection) -> None:
    answer = ask(connection, "rmsnorm atomics")
    assert "kernel/rmsnorm/old" not in ids(answer)
    assert any("kernel/rmsnorm/old" in note for note in answer.notes)
    shown = {hit.id: hit for hit in ask(connection, "rmsnorm atomics", withdrawn=True).hits}
    assert shown["kernel/rmsnorm/old"].why[0] == "withdrawn 2026-11-30: races on ties"


def test_an_empty_answer_names_the_filter_and_the_nearest(connection: sqlite3.Connection) -> None:
    answer = ask(connection, "rmsnorm", dtype="int4")
    assert answer.hits == ()
    assert str(answer.empty_because).startswith(
        "--dtype int4 leaves nothing; without it the nearest is kernel/rmsnorm/row"
    )


def test_filters_that_only_together_leave_nothing_are_named_together(connection: sqlite3.Connection) -> None:
    because = ask(connection, "rmsnorm", kind="campaign", dtype="int4").empty_because
    assert "--dtype int4 --kind campaign together leave nothing" in str(because)


def test_an_unknown_word_offers_a_known_one(connection: sqlite3.Connection) -> None:
    assert "did you mean rmsnorm" in str(ask(connection, "rmnsrom").empty_because)


def test_a_slip_of_one_letter_is_read_as_what_it_was_meant_to_be(connection: sqlite3.Connection) -> None:
    answer = ask(connection, "rmsnrom")
    assert answer.hits[0].id == "kernel/rmsnorm/row"
    assert "rmsnrom → rmsnorm (spelling)" in answer.expansions


def test_punctuation_alone_is_explained(connection: sqlite3.Connection) -> None:
    assert ask(connection, "???").empty_because == "the query has no word to look for"


def test_an_empty_knowledge_base_says_so(tmp_path: Path) -> None:
    (tmp_path / "entries" / "kernel").mkdir(parents=True)
    connection = open_reader(ensure_index(Root(tmp_path)))
    assert "no entries yet" in str(ask(connection, "rmsnorm").empty_because)
    connection.close()


@pytest.mark.parametrize("query", ["", "  ", "\n\t"])
def test_an_empty_query_is_an_error(connection: sqlite3.Connection, query: str) -> None:
    with pytest.raises(RetrievalError, match="empty"):
        ask(connection, query)


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_limit_out_of_range_is_an_error(connection: sqlite3.Connection, limit: int) -> None:
    with pytest.raises(RetrievalError, match="expected 1 to 1000"):
        ask(connection, "rmsnorm", limit=limit)


def test_a_catalogue_that_turns_out_broken_is_a_stale_index() -> None:
    with pytest.raises(IndexStaleError, match="cannot be read"):
        ask(sqlite3.connect(":memory:"), "rmsnorm")


@_PROPERTY
@given(query=st.text(st.characters(codec=None), max_size=300))
def test_no_text_makes_search_fail(connection: sqlite3.Connection, query: str) -> None:
    try:
        answer = ask(connection, query)
    except KbError:
        assert not query.strip()
    else:
        assert bool(answer.hits) != bool(answer.empty_because)


_VOCABULARY = (
    "nvfp4",
    "moe",
    "rmsnorm",
    "softmax",
    "vllm",
    "h100",
    "decode",
    "slower",
    "b200",
    "the",
    "registers",
    "fp4",
)
_WORDS = st.lists(st.sampled_from(_VOCABULARY), min_size=1, max_size=6).map(" ".join)


@_PROPERTY
@given(query=_WORDS, limit=st.integers(1, 5))
def test_the_same_question_has_the_same_answer_and_a_shorter_one_is_its_head(
    connection: sqlite3.Connection, query: str, limit: int
) -> None:
    full = ask(connection, query)
    assert full.with_(took_ms=0) == ask(connection, query).with_(took_ms=0)
    assert ids(ask(connection, query, limit=limit)) == ids(full)[:limit]
    keys = [(-hit.score, hit.id) for hit in full.hits]
    assert keys == sorted(keys)


@_PROPERTY
@given(
    query=_WORDS,
    kind=st.none() | st.sampled_from(KINDS),
    outcome=st.none() | st.sampled_from(OUTCOMES),
    dtype=st.none() | st.sampled_from(["nvfp4", "bfloat16", "int4"]),
    operator=st.none() | st.sampled_from(["rmsnorm", "moe", "softmax"]),
)
def test_no_hit_lies_outside_the_scope(
    connection: sqlite3.Connection,
    query: str,
    kind: str | None,
    outcome: str | None,
    dtype: str | None,
    operator: str | None,
) -> None:
    made = filters.make(connection, kind=kind, outcome=outcome, dtype=dtype, operator=operator)
    answer = retriever.search(connection, query, scope=made, limit=10)
    for hit in answer.hits:
        facts = browse.get(connection, hit.id)
        assert kind in (None, hit.kind)
        assert outcome in (None, hit.outcome)
        assert dtype is None or dtype in facts["dtypes"]
        assert not made.operators or set(made.operators) & set(facts["operators"])
        assert facts["withdrawn"] is None


def test_an_entry_is_found_by_id_folder_and_unique_slug(connection: sqlite3.Connection) -> None:
    for name in (IN_REGISTER, f"entries/{IN_REGISTER}/", "in-register"):
        assert browse.get(connection, name)["id"] == IN_REGISTER


def test_a_wrong_id_names_the_nearest(connection: sqlite3.Connection) -> None:
    with pytest.raises(EntryNotFoundError) as caught:
        browse.get(connection, "kernel/rmsnorm/rwo")
    assert "kernel/rmsnorm/row" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["", "\udc80", "\0", "../../etc/passwd", "%"])
def test_a_hostile_id_is_not_found(connection: sqlite3.Connection, name: str) -> None:
    with pytest.raises(EntryNotFoundError):
        browse.get(connection, name)


def test_a_listing_is_sorted_and_has_transfer_only_for_a_device(connection: sqlite3.Connection) -> None:
    entries = browse.listing(connection, filters.make(connection))
    assert [entry["id"] for entry in entries] == sorted(entry["id"] for entry in entries)
    assert {entry["transfer"] for entry in entries} == {None}
    there = browse.listing(connection, filters.make(connection, device="H100"))
    assert {entry["id"]: entry["transfer"] for entry in there}[NATIVE] not in RUNNABLE
