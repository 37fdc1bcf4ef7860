"""The graded set is what its files and README say, and searches stay as good on it as they were measured to be."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kb.config import Root
from kb.service import evaluating

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = REPOSITORY / "tests" / "data"
FILE = DATA / "graded.jsonl"
TUNING = DATA / "tuning.jsonl"
THIRD = DATA / "tuning_third.jsonl"

FLOOR = 0.87
"""nDCG@10 of the test half among the made-up entries, a little below what was measured."""

TUNED_FLOOR = 0.90
"""The same for every third of the queries that search was tuned with."""


@pytest.fixture(scope="module")
def made() -> ModuleType:
    """Return the module that makes the set."""
    spec = importlib.util.spec_from_file_location("graded_set", DATA / "graded.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_it_has_at_least_150_queries_in_two_halves() -> None:
    queries = evaluating.read_queries(FILE)
    assert len(queries) >= 150
    assert len({one.query for one in queries}) == len(queries)
    halves = [sum(one.half == half for one in queries) for half in ("tune", "test")]
    assert min(halves) >= 75
    assert sum(halves) == len(queries)


def test_it_is_what_the_two_graders_said(made: ModuleType) -> None:
    lines = [{**line, "relevant": dict(line["relevant"])} for line in made.read("graded.jsonl")]
    assert lines == made.graded()


def test_later_entries_have_their_siblings_grades_in_every_file(made: ModuleType) -> None:
    for name in ("graded.jsonl", *made.TUNING):
        lines = made.read(name)
        assert [line["relevant"] for line in lines] == [made.with_later(line["relevant"]) for line in lines]


def test_the_readme_states_how_far_they_agree(made: ModuleType) -> None:
    found = made.agreement(made.read("grades_1.jsonl"), made.read("grades_2.jsonl"))
    text = (DATA / "README.md").read_text(encoding="utf-8")
    for figure in (f"{found.kappa:.2f}", f"{found.strict_kappa:.2f}", f"{found.overlap:.2f}", f"{found.pairs} pairs"):
        assert figure in text
    assert f"{len(made.graded())} queries" in text


def test_the_second_source_of_tuning_queries_shares_none_with_the_first() -> None:
    second = evaluating.read_queries(TUNING)
    assert len(second) >= 250
    assert {one.half for one in second} == {"tune"}
    texts = [one.query.casefold() for one in (*evaluating.read_queries(FILE), *second)]
    assert len(set(texts)) == len(texts)


def test_the_third_source_has_two_halves_and_shares_no_query_with_the_others(made: ModuleType) -> None:
    third = evaluating.read_queries(THIRD)
    assert len(third) >= 250
    assert all(one.half == made.half_of(one.query) for one in third)
    texts = [one.query.casefold() for path in (FILE, TUNING, THIRD) for one in evaluating.read_queries(path)]
    assert len(set(texts)) == len(texts)


def test_the_third_source_asks_for_every_entry() -> None:
    useful = {entry for one in evaluating.read_queries(THIRD) for entry, grade in one.relevant.items() if grade >= 2}
    assert len(useful) >= 140


@pytest.mark.parametrize("file", [FILE, TUNING, THIRD])
def test_every_graded_entry_exists(file: Path) -> None:
    for one in evaluating.read_queries(file):
        for entry in one.relevant:
            assert (REPOSITORY / "entries" / entry / "entry.toml").is_file(), (one.line, entry)


def test_words_alone_stay_good_among_many_made_up_entries() -> None:
    queries = evaluating.read_queries(FILE, half="test")
    tuned = [*evaluating.read_queries(FILE, half="tune"), *evaluating.read_queries(TUNING)][::3]
    with evaluating.among_distractors(Root(REPOSITORY), 5_000) as base:
        bare, plain = evaluating.evaluate(base, queries, ["bare", "fts"])
        (seen,) = evaluating.evaluate(base, tuned, ["bare"])
    assert bare.mean("ndcg_at_10") >= FLOOR
    assert bare.against(plain)["ndcg_at_10"].low > 0.05
    assert seen.mean("ndcg_at_10") >= TUNED_FLOOR
