"""The order follows relevance first, then what is known of an entry."""

import sqlite3

import pytest

from kb.models.facts import Standing
from kb.retrieval import rank
from kb.retrieval.query import Understanding, understand
from kb.transfer import Transfer

NOTHING = Understanding((), ())
PLAIN = rank.Candidate(
    kind="kernel",
    operator="rmsnorm",
    outcome="works",
    title="A kernel",
    text=0.5,
    topics=frozenset(),
    mentions=frozenset(),
    standing=Standing("documented", "unknown"),
    transfer=None,
)


def of(candidate: rank.Candidate, *, asked: bool = False, read: Understanding = NOTHING) -> float:
    return rank.score(candidate, read, asked=asked)


def test_scores_lie_between_nought_and_one() -> None:
    best = PLAIN.with_(text=1.0, standing=Standing("end_to_end", "fresh"), transfer=Transfer("exact"))
    worst = PLAIN.with_(text=0.0, standing=Standing("documented", "refuted"), transfer=Transfer("none"))
    assert 0.0 <= of(worst, asked=True) < of(best, asked=True) <= 1.0


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"text": 0.9}, {"text": 0.4}),
        ({"standing": Standing("measured", "unknown")}, {"standing": Standing("reported", "unknown")}),
        ({"standing": Standing("reported", "fresh")}, {"standing": Standing("reported", "stale")}),
        ({"outcome": "works"}, {"outcome": "regression"}),
        ({"kind": "kernel"}, {"kind": "target"}),
        ({"transfer": Transfer("recompile")}, {"transfer": Transfer("port")}),
    ],
)
def test_all_else_equal_each_part_decides(better: dict[str, object], worse: dict[str, object]) -> None:
    assert of(PLAIN.with_(**better), asked=True) > of(PLAIN.with_(**worse), asked=True)


@pytest.mark.parametrize("reaches", ["exact", "recompile", "retune"])
@pytest.mark.parametrize("fails", ["port", "technique", "none"])
def test_on_an_asked_device_a_runnable_entry_passes_a_slightly_better_match(reaches: str, fails: str) -> None:
    runnable = PLAIN.with_(text=0.85, transfer=Transfer(reaches))
    other = PLAIN.with_(text=1.0, transfer=Transfer(fails))
    assert of(runnable, asked=True) > of(other, asked=True)


def test_a_device_that_is_only_mentioned_weighs_less() -> None:
    poor = PLAIN.with_(text=1.0, transfer=Transfer("none"))
    assert of(poor, asked=True) < of(poor, asked=False)


def test_a_search_for_what_failed_prefers_what_failed(connection: sqlite3.Connection) -> None:
    read = understand(connection, "what did not work")
    assert of(PLAIN.with_(outcome="no_effect"), read=read) > of(PLAIN, read=read)


def test_the_named_operator_passes_a_fusion_that_contains_its_name(connection: sqlite3.Connection) -> None:
    read = understand(connection, "rms norm")
    fused = PLAIN.with_(operator="fused_add_rmsnorm", text=0.55)
    assert of(PLAIN, read=read) > of(fused, read=read)


def test_reasons_say_that_code_does_not_run() -> None:
    candidate = PLAIN.with_(transfer=Transfer("technique", ("needs fp4_mma, which sm_90 lacks",)), outcome="infeasible")
    assert rank.reasons(candidate, "NVIDIA H200") == (
        "negative result: infeasible",
        "technique (does not run as it is on NVIDIA H200): needs fp4_mma, which sm_90 lacks",
    )


def test_on_an_asked_device_an_idea_is_what_it_is_everywhere() -> None:
    idea = PLAIN.with_(kind="technique", operator=None, code=False, transfer=Transfer("technique"))
    code = idea.with_(code=True)
    assert of(idea, asked=True) > of(code, asked=True)


def test_parameters_tuned_elsewhere_reach_less_far_than_code() -> None:
    code = PLAIN.with_(transfer=Transfer("retune"))
    assert of(code, asked=True) > of(code.with_(kind="config"), asked=True)


def test_the_words_of_a_title_count(connection: sqlite3.Connection) -> None:
    read = understand(connection, "frobnicate the rows")
    assert of(PLAIN.with_(title="Frobnicate a row"), read=read) > of(PLAIN.with_(title="A kernel"), read=read)


def test_a_tag_says_more_than_a_word_of_a_title(connection: sqlite3.Connection) -> None:
    read = understand(connection, "frobnicate the rows")
    assert of(PLAIN.with_(tags="frobnicate"), read=read) > of(PLAIN.with_(title="Frobnicate"), read=read)


def test_what_is_likely_is_the_part_of_a_score_without_facts(connection: sqlite3.Connection) -> None:
    read = understand(connection, "rms norm of rows")
    entry = PLAIN.with_(title="RMSNorm of rows", tags="norm rows", topics=frozenset({"rmsnorm", "norm"}))
    bare = PLAIN.with_(text=0.0, title="")
    likely = rank.likely(entry.text, entry.title, entry.tags, entry.topics, entry.mentions, read)
    assert of(entry, read=read) - of(bare, read=read) == pytest.approx(likely, abs=1e-3)
    assert rank.likely(0.0, "", "", frozenset(), frozenset(), read) == 0.0


def test_knowledge_about_the_named_operator_stands_between(connection: sqlite3.Connection) -> None:
    read = understand(connection, "rms norm")
    about = PLAIN.with_(operator=None, topics=frozenset({"rmsnorm"}))
    other = PLAIN.with_(operator="gemm", topics=frozenset({"rmsnorm"}))
    assert of(PLAIN.with_(topics=frozenset({"rmsnorm"})), read=read) > of(about, read=read) > of(other, read=read)


def test_where_no_operator_is_named_what_fits_several_goes_first() -> None:
    assert of(PLAIN.with_(narrow=False)) > of(PLAIN.with_(narrow=True))


def test_what_is_made_for_training_waits_until_it_is_asked_for(connection: sqlite3.Connection) -> None:
    gradient = PLAIN.with_(topics=frozenset({"training", "rmsnorm"}))
    plain = PLAIN.with_(topics=frozenset({"rmsnorm"}))
    assert of(gradient, read=understand(connection, "rmsnorm")) < of(plain, read=understand(connection, "rmsnorm"))
    asked = understand(connection, "rmsnorm backward pass")
    assert of(gradient, read=asked) > of(plain, read=asked)


def test_where_something_is_wrong_knowledge_goes_before_code(connection: sqlite3.Connection) -> None:
    read = understand(connection, "illegal memory access")
    assert of(PLAIN.with_(kind="technique"), read=read) > of(PLAIN, read=read)


def test_what_people_ask_of_an_entry_counts(connection: sqlite3.Connection) -> None:
    read = understand(connection, "why is frobnication of rows so slow at night and not by day")
    asked = PLAIN.with_(questions=("frobnication of rows is slow at night", "something else"))
    other = PLAIN.with_(questions=("frobnication by hand",))
    assert of(asked, read=read) > of(other, read=read) > of(PLAIN, read=read)


def test_what_is_tagged_like_the_best_hits_comes_nearer() -> None:
    tags = [frozenset({"moe", "fp4", "hopper"}), frozenset({"radix", "sort"}), frozenset({"moe", "fp4", "blackwell"})]
    best, other, kin = rank.with_kin([0.6, 0.5, 0.45], tags)
    assert best > kin > other


def test_what_is_far_behind_the_best_hit_draws_nobody_along() -> None:
    tags = [frozenset({"moe"}), frozenset({"radix"}), frozenset({"radix"}), frozenset({"sort"})]
    near = rank.with_kin([0.9, 0.8, 0.3, 0.3], tags)
    far = rank.with_kin([0.9, 0.31, 0.3, 0.3], tags)
    assert near[2] - near[3] > 10 * (far[2] - far[3]) > 0.0


@pytest.mark.parametrize("scores", [[], [0.0], [0.0, 0.0], [1.0, 1.0, 1.0], [1.0] * 6 + [0.0]])
def test_scores_with_kin_stay_between_nought_and_one(scores: list[float]) -> None:
    for labels in (frozenset[str](), frozenset({"moe"})):
        found = rank.with_kin(scores, [labels] * len(scores))
        assert len(found) == len(scores)
        assert all(0.0 <= one <= 1.0 for one in found)


def test_every_score_has_its_tags() -> None:
    with pytest.raises(ValueError, match="shorter"):
        rank.with_kin([0.5, 0.4], [frozenset()])


def test_without_any_tags_the_order_stays() -> None:
    found = rank.with_kin([0.9, 0.7, 0.4], [frozenset()] * 3)
    assert found == sorted(found, reverse=True)


def test_a_word_that_few_hits_have_tells_them_apart() -> None:
    read = Understanding(("tree", "allreduce"), (), said=frozenset({"tree", "allreduce"}))
    tags = ["allreduce ring", "allreduce tree", "allreduce", "allreduce two-shot"]
    found = rank.with_rare([0.5] * 4, [PLAIN.with_(tags=one) for one in tags], read)
    assert found[1] > found[0] == found[2] == found[3]


def test_a_rare_word_may_stand_in_a_question_and_in_another_form() -> None:
    read = Understanding(("gaps", "captured"), (), said=frozenset({"gap", "captured"}))
    asked = PLAIN.with_(questions=("Why do gaps stay when I am capturing?",))
    first, second = rank.with_rare([0.5, 0.5], [asked, PLAIN], read)
    assert first > second


def test_what_all_hits_have_or_none_has_changes_no_order() -> None:
    read = Understanding(("norm", "unheard"), (), said=frozenset({"norm", "unheard"}))
    found = rank.with_rare([0.6, 0.4], [PLAIN.with_(tags="norm"), PLAIN.with_(tags="norm")], read)
    assert 0.6 - 0.4 > found[0] - found[1] > 0.0


def test_nothing_asked_and_nothing_found_are_no_trouble() -> None:
    assert rank.with_rare([], [], NOTHING) == []
    assert len(rank.with_rare([0.5], [PLAIN], NOTHING)) == 1
    with pytest.raises(ValueError, match="shorter"):
        rank.with_rare([0.5, 0.4], [PLAIN], NOTHING)


def test_parameters_come_behind_code_unless_tuning_is_asked_for(connection: sqlite3.Connection) -> None:
    config = PLAIN.with_(kind="config")
    assert of(config, read=understand(connection, "moe kernel")) < of(PLAIN, read=understand(connection, "moe kernel"))
    tuned = understand(connection, "tuned tile sizes of the moe kernel")
    assert of(config, read=tuned) == of(PLAIN, read=tuned)
