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
    facets=frozenset(),
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
