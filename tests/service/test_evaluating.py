"""Graded queries are read strictly, and every way to search is measured on the same ones."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.config import Root
from kb.errors import ConfigError, EmbedderUnavailableError, EntryFormatError, RetrievalError
from kb.retrieval import metrics
from kb.service import evaluating, tiers
from kb.service.searching import Filters, list_root, search_root

WriteEntry = Callable[..., Path]
ROW = "kernel/rmsnorm/row-per-cta"
GOOD: dict[str, Any] = {"query": "rmsnorm", "relevant": {ROW: 3}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "queries.jsonl"


@pytest.fixture
def base(root: Root, write_entry: WriteEntry) -> Root:
    write_entry(root.entries, ROW)
    write_entry(root.entries, "kernel/layernorm/two-moment")
    return root


def write(file: Path, *lines: Mapping[str, Any] | str) -> Path:
    file.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines), encoding="utf-8")
    return file


def test_a_line_is_read_with_its_scope_and_half(file: Path) -> None:
    line = {**GOOD, "scope": {"dtype": "bf16", "withdrawn": True}, "half": "tune", "origin": "engineer"}
    read = evaluating.read_queries(write(file, "", line, "  "))
    assert read == (evaluating.Graded("rmsnorm", {ROW: 3}, Filters(dtype="bf16", withdrawn=True), half="tune", line=2),)


def test_one_half_is_picked(file: Path) -> None:
    write(file, {**GOOD, "half": "tune"}, {**GOOD, "query": "norm", "half": "test"}, {**GOOD, "query": "other"})
    assert [one.query for one in evaluating.read_queries(file, half="test")] == ["norm"]
    assert len(evaluating.read_queries(file)) == 3


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{", "expected a JSON object"),
        ("[1]", "line: expected a JSON object"),
        ("[" * 100_000, "expected a JSON object"),
        ({**GOOD, "query": " "}, "query: expected text"),
        ({"relevant": {ROW: 3}}, "query: expected text, found null"),
        ({"query": "x"}, "relevant: expected an object"),
        ({"query": "x", "relevant": {}}, "relevant: expected an object"),
        ({"query": "x", "relevant": {"../etc": 3}}, "relevant: expected ids such as"),
        ({"query": "x", "relevant": {ROW: 4}}, f"relevant.{ROW}: expected a grade from 0 to 3, found 4"),
        ({"query": "x", "relevant": {ROW: True}}, f"relevant.{ROW}: expected a grade"),
        ({"query": "x", "relevant": {ROW: 2.5}}, f"relevant.{ROW}: expected a grade"),
        ({"query": "x", "relevant": {ROW: 0}}, "relevant: expected a grade above 0"),
        ({**GOOD, "scope": "h100"}, "scope: expected an object"),
        ({**GOOD, "scope": {"devise": "h100"}}, "scope.devise: expected one of the filters kind, operator"),
        ({**GOOD, "scope": {"device": 100}}, "scope.device: expected text, found 100"),
        ({**GOOD, "scope": {"withdrawn": "yes"}}, "scope.withdrawn: expected true or false"),
        ({**GOOD, "half": "train"}, "half: expected tune or test"),
        ({**GOOD, "scopes": {}}, "scopes: expected one of the fields"),
    ],
)
def test_a_bad_line_is_one_clear_line_with_its_number(file: Path, line: Mapping[str, Any] | str, named: str) -> None:
    write(file, GOOD, line)
    with pytest.raises(EntryFormatError) as caught:
        evaluating.read_queries(file)
    assert f"{file}, line 2: " in caught.value.message
    assert named in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 400


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(EntryFormatError, match="No such file"):
        evaluating.read_queries(tmp_path / "absent.jsonl")
    binary = tmp_path / "binary.jsonl"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(EntryFormatError, match="not UTF-8"):
        evaluating.read_queries(binary)


def test_nothing_to_measure_is_an_error(file: Path) -> None:
    with pytest.raises(EntryFormatError, match="no queries"):
        evaluating.read_queries(write(file, ""))
    with pytest.raises(EntryFormatError, match='"half": "test"'):
        evaluating.read_queries(write(file, GOOD), half="test")
    with pytest.raises(ConfigError, match="no half"):
        evaluating.read_queries(file, half="both")


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(tmp_path_factory: pytest.TempPathFactory, body: bytes) -> None:
    file = tmp_path_factory.mktemp("any") / "queries.jsonl"
    file.write_bytes(body)
    with pytest.raises(EntryFormatError):
        evaluating.read_queries(file)


def graded(query: str, relevant: Mapping[str, int], **filters: str) -> evaluating.Graded:
    return evaluating.Graded(query, relevant, Filters(**filters), half=None, line=1)  # type: ignore[arg-type]


def test_tiers_are_measured_in_the_order_asked_for(base: Root) -> None:
    found = evaluating.evaluate(base, [graded("rmsnorm", {ROW: 3})], ["fts", "bare"])
    assert [one.tier for one in found] == ["fts", "bare"]
    assert all(one.qualities == (metrics.Quality(1.0, 1.0, 1.0, 1.0),) for one in found)
    assert all(len(one.latencies_ms) == 1 and one.latencies_ms[0] > 0 for one in found)


def test_a_scope_is_applied_in_every_tier(base: Root) -> None:
    query = graded("norm kernel", {ROW: 3}, operator="layernorm")
    assert [one.mean("ndcg_at_10") for one in evaluating.evaluate(base, [query], ["bare", "fts"])] == [0.0, 0.0]


def test_plain_full_text_search_takes_any_query_as_words(base: Root) -> None:
    queries = [graded(text, {ROW: 3}) for text in ('"', "NEAR(rmsnorm", "rmsnorm*", "-- ??", "title:rmsnorm")]
    assert evaluating.evaluate(base, queries, ["fts"])[0].mean("hit_at_1") < 1.0


def test_an_unknown_tier_id_or_scope_is_named(base: Root) -> None:
    with pytest.raises(ConfigError, match="no tier is called 'best'"):
        evaluating.evaluate(base, [graded("x", {ROW: 3})], ["best"])
    with pytest.raises(RetrievalError, match="line 1: relevant: no entry has the id 'kernel/a/b'"):
        evaluating.evaluate(base, [graded("x", {"kernel/a/b": 3})], ["bare"])
    with pytest.raises(RetrievalError, match="line 1: scope: no dtype is called"):
        evaluating.evaluate(base, [graded("x", {ROW: 3}, dtype="nvpf4")], ["bare"])
    with pytest.raises(RetrievalError, match="line 1: scope: no device"):
        evaluating.evaluate(base, [graded("x", {ROW: 3}, device="H1000")], ["bare"])


def test_made_up_entries_stand_beside_the_real_ones_and_vanish(base: Root) -> None:
    with evaluating.among_distractors(base, 120) as grown:
        assert len(list_root(grown, Filters())) == 122
        assert search_root(grown, "rmsnorm row per cta", filters=Filters()).hits[0].id == ROW
        assert len(search_root(grown, "histogram radix sort", filters=Filters()).hits) > 2
        # Nothing brings the catalogue "up to date" with the empty folder beside it.
        assert search_root(grown, "radix sort", filters=Filters()).hits
    assert not grown.path.exists()
    assert len(list_root(base, Filters())) == 2


def test_the_number_of_made_up_entries_is_checked(base: Root) -> None:
    with evaluating.among_distractors(base, 0) as same:
        assert same == base
    for count in (-1, 10**9):
        with pytest.raises(ConfigError, match="distractors"), evaluating.among_distractors(base, count):
            pass


def test_differences_are_paired(base: Root) -> None:
    good, bad = metrics.Quality(1.0, 1.0, 1.0, 1.0), metrics.Quality(0.5, 0.5, 0.5, 0.0)
    one = evaluating.Measured("bare", (good, bad), (1.0, 3.0))
    other = evaluating.Measured("fts", (bad, bad), (1.0, 1.0))
    assert one.against(other)["ndcg_at_10"].mean == 0.25
    shown = one.to_json(other)
    assert shown["ndcg_at_10"] == 0.75
    assert shown["latency_ms"] == {"p50": 2.0, "p95": 2.9}
    assert shown["against"]["tier"] == "fts"
    assert set(shown["against"]["hit_at_1"]) == {"mean", "low", "high"}
    assert "against" not in one.to_json(one)


@pytest.mark.parametrize("name", ["semantic", "chroma", "rrf"])
def test_a_tier_by_meaning_without_its_packages_says_what_to_install(
    base: Root, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kb.retrieval.model_files.find_spec", lambda _name: None)
    with pytest.raises(EmbedderUnavailableError) as caught:
        evaluating.evaluate(base, [graded("x", {ROW: 3})], [name])
    assert "kernel-kb[" in str(caught.value.hint)


def test_tiers_by_meaning_search_the_same_vectors(base: Root) -> None:
    pytest.importorskip("chromadb")
    pytest.importorskip("onnxruntime")
    found = evaluating.evaluate(base, [graded("root mean square norm", {ROW: 3})], ["semantic", "chroma", "rrf"])
    assert [one.tier for one in found] == ["semantic", "chroma", "rrf"]
    assert all(one.mean("recall_at_5") == 1.0 for one in found)


def test_what_changes_on_the_machine_during_a_measurement_changes_nothing(
    base: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("chromadb")
    pytest.importorskip("onnxruntime")
    monkeypatch.setenv("KB_CONFIG_DIR", str(tmp_path / "config"))
    (tmp_path / "config").mkdir()
    queries = [graded("rmsnorm", {ROW: 3}), graded("root mean square norm", {ROW: 3})]
    names = ["bare", "semantic", "chroma", "rrf", "fts"]
    changes = []

    @contextmanager
    def edited(what: str) -> Iterator[Callable[[int, int], None]]:
        # A catalogue is brought up to date when settings changed, which for made-up entries would empty it.
        changes.append(what)
        (tmp_path / "config" / "config.toml").write_text("\n" * len(changes), encoding="utf-8")
        yield lambda _done, _total: None

    with evaluating.among_distractors(base, 60) as grown:
        calm = evaluating.evaluate(grown, queries, names)
    with evaluating.among_distractors(base, 60, stage=edited) as grown:
        changed = evaluating.evaluate(grown, queries, names, stage=edited)
    assert len(changes) == 11
    assert [one.qualities for one in changed] == [one.qualities for one in calm]
    assert min(one.mean("recall_at_5") for one in calm) > 0.0


def test_every_tier_has_a_name_and_a_depth() -> None:
    assert tuple(tiers.TIERS) == ("bare", "fts", "semantic", "chroma", "rrf")
    assert tiers.DEPTH == 10
