"""Conflicts between entries, and what comes before what."""

from kb.planning import Known, contracts
from kb.planning.values import Match, Offer, Wanted
from kb.transfer import Transfer
from tests.planning.made import entry, ids, plan_of, row, wish


def offer(one: Known, *rows: Wanted) -> Offer:
    reached = Transfer("recompile")
    return Offer(one, reached, tuple(Match(each, reached) for each in rows))


ARENA = entry("allocation/workspace_plan/arena", contracts={"conflicts": ["stream:multiple"]})
POOL = entry("allocation/graph_pool/pool", contracts={"provides": ["stream:multiple"]})


def test_of_two_that_conflict_the_more_valuable_is_kept() -> None:
    kept, dropped = contracts.resolve([offer(ARENA), offer(POOL)], [])
    assert [one.entry.id for one in kept] == [ARENA.id]
    assert [(one.entry.id, reason) for one, reason in dropped] == [
        (POOL.id, f"conflicts with {ARENA.id} over stream:multiple; that one is kept")
    ]


def test_a_conflict_holds_both_ways() -> None:
    kept, _ = contracts.resolve([offer(POOL), offer(ARENA)], [])
    assert [one.entry.id for one in kept] == [POOL.id]


def test_a_combination_that_uses_both_reconciles_them() -> None:
    recipe = entry("combination/step/x", uses=[ARENA.id, POOL.id])
    plan = plan_of([ARENA, POOL, recipe], wish(row("products", "gemm")))
    assert {ARENA.id, POOL.id} <= set(ids(plan))
    notes = next(one.notes for one in plan.rows if one.id == ARENA.id)
    assert notes == (f"conflicts with {POOL.id} over stream:multiple: {recipe.id} says how they go together",)


def test_layouts_meet_on_a_row_that_both_serve_and_nowhere_else() -> None:
    tiles = entry("kernel/gemm/tiles", contracts={"conflicts": ["layout:row_major"]})
    rows = entry("kernel/gemm/rows", contracts={"requires": ["layout:row_major"]})
    here, there = row("here", "gemm"), row("there", "gemm")
    assert len(contracts.resolve([offer(tiles, here), offer(rows, there)], [])[0]) == 2
    assert len(contracts.resolve([offer(tiles, here), offer(rows, here)], [])[0]) == 1


def test_code_that_runs_is_not_given_up_for_an_idea_of_more_rows() -> None:
    idea = entry("technique/layout/pack", applies_to=["gemm", "layernorm"],
                 contracts={"conflicts": ["layout:row_major"]})  # fmt: skip
    code = entry("kernel/gemm/a", contracts={"requires": ["layout:row_major"]})
    plan = plan_of([idea, code], wish(row("small", "gemm", 0.01), row("large", "layernorm", 0.9)))
    assert ids(plan) == [code.id]
    assert plan.coverage[0].runnable == (code.id,)


def test_a_conflict_with_capturing_is_one_with_what_captures() -> None:
    split = entry("comm/all_to_all/x", contracts={"conflicts": ["graph:capture"]})
    graph = entry("technique/launch/g", contracts={"provides": ["graph:captured"]})
    safe = entry("kernel/gemm/a", contracts={"provides": ["graph:capture_safe"]})
    assert contracts.conflict(split, graph, shared=False) == "graph:capture"
    assert contracts.conflict(split, safe, shared=True) is None


def test_what_another_one_builds_on_comes_first() -> None:
    pool = entry("allocation/graph_pool/pool", contracts={"requires": ["graph:capture_safe"]})
    code = entry("kernel/gemm/a", contracts={"provides": ["graph:capture_safe"]})
    assert [one.entry.id for one in contracts.in_order([offer(pool), offer(code)])] == [code.id, pool.id]


def test_what_waits_for_itself_in_a_circle_goes_by_value() -> None:
    first = entry("kernel/gemm/a", contracts={"requires": ["x:b"], "provides": ["x:a"]})
    second = entry("kernel/gemm/b", contracts={"requires": ["x:a"], "provides": ["x:b"]})
    assert [one.entry.id for one in contracts.in_order([offer(first), offer(second)])] == [first.id, second.id]


def test_what_nothing_in_the_plan_provides_is_left_to_the_step() -> None:
    plan = plan_of(
        [entry("allocation/workspace_plan/a", contracts={"requires": ["shapes:static"]})], wish(row("p", "gemm"))
    )
    assert plan.rows[0].notes == ("the step has to provide shapes:static",)
