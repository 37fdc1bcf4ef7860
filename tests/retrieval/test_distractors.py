"""Made-up entries are the same everywhere, valid, and about nothing that real ones are about."""

import hashlib

from kb.models.entry import EntryFile
from kb.models.vocabulary import ENTRY_ID
from kb.retrieval import distractors
from kb.validators.operators.names import NAMES

MANY = list(distractors.generate(3_000))


def test_they_are_the_same_everywhere() -> None:
    text = "\n".join(f"{one.id}|{one.facts['title']}|{one.readme}" for one in MANY[:200])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "65e6de2eadb7eac0"


def test_a_larger_number_begins_with_a_smaller_one() -> None:
    assert list(distractors.generate(50)) == MANY[:50]


def test_ids_are_distinct_and_well_formed() -> None:
    assert len({one.id for one in MANY}) == len(MANY)
    assert all(ENTRY_ID.fullmatch(one.id) for one in MANY)


def test_nearly_all_titles_differ() -> None:
    assert len({one.facts["title"] for one in MANY}) > 0.9 * len(MANY)


def test_every_one_would_pass_as_an_entry() -> None:
    for one in MANY[:800]:
        entry = EntryFile.model_validate(one.facts)
        kind = one.id.split("/")[0]
        if kind not in ("combination", "target", "campaign"):  # what those refer to is not made up as well
            assert entry.missing_for(kind) == [], one.id


def test_they_have_questions_as_real_entries_have() -> None:
    counts = [len(one.facts["questions"]) for one in MANY]
    assert min(counts) >= 3
    assert max(counts) <= 7
    asked = {question for one in MANY for question in one.facts["questions"]}
    assert len(asked) > 1_000
    assert not any("{" in question for question in asked)


def test_all_kinds_and_negative_results_are_among_them() -> None:
    kinds = {one.id.split("/")[0] for one in MANY}
    assert kinds == {"kernel", "technique", "config", "combination", "comm", "allocation", "campaign", "target"}
    assert {"works", "regression", "no_effect", "incorrect"} == {one.facts["outcome"] for one in MANY}


def test_none_is_about_an_operator_that_entries_are_about() -> None:
    topics = {one.id.split("/")[1] for one in MANY}
    assert not topics & {
        *NAMES,
        "kv_block_pool",
        "workspace_plan",
        "graph_pool",
        "all_reduce",
        "all_to_all",
        "all_gather",
    }
