"""Plans: what is worth most comes first, nothing that cannot run is offered as if it could, what is missing is said."""

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kb.models.plan import Plan
from kb.planning import Forecast, Known, Size, Wanted
from tests.planning.made import entry, ids, plan_of, row, wish

NORM = entry("kernel/layernorm/a")
GEMM = entry("kernel/gemm/a")


def test_work_goes_by_share_where_nothing_is_measured_and_no_gain_is_made_up() -> None:
    plan = plan_of([NORM, GEMM], wish(row("norms", "layernorm", 0.1), row("products", "gemm", 0.6)))
    assert ids(plan) == ["kernel/gemm/a", "kernel/layernorm/a"]
    assert [one.gain for one in plan.rows] == [None, None]
    assert [one.saving for one in plan.rows] == [None, None]
    assert plan.gaps == ()


def test_a_large_predicted_gain_of_a_small_share_can_be_worth_more() -> None:
    rows = wish(row("norms", "layernorm", 0.2), row("products", "gemm", 0.6))
    expected = {
        ("kernel/layernorm/a", "norms"): Forecast(4.0, 3.0, 5.0, "measured"),
        ("kernel/gemm/a", "products"): Forecast(1.05, 1.0, 1.1, "predicted"),
    }
    plan = plan_of([NORM, GEMM], rows, expected)
    assert ids(plan) == ["kernel/layernorm/a", "kernel/gemm/a"]
    first = plan.rows[0]
    assert first.saving is not None
    assert abs(first.saving - 0.2 * 0.75 * first.confidence) < 1e-4
    assert (first.gain, first.gain_from) == (4.0, "measured")


def test_what_is_surely_slower_there_is_left_out_with_its_figure() -> None:
    plan = plan_of([NORM], wish(row("norms", "layernorm")), {(NORM.id, "norms"): Forecast(0.5, 0.4, 0.6, "measured")})
    assert plan.rows == ()
    assert [(one.id, one.because) for one in plan.excluded] == [(NORM.id, "slower")]
    assert plan.gaps[0].row == "norms"


def test_what_may_be_slower_is_still_offered() -> None:
    expected = {(NORM.id, "norms"): Forecast(0.9, 0.6, 1.4, "predicted")}
    plan = plan_of([NORM], wish(row("norms", "layernorm")), expected)
    assert ids(plan) == [NORM.id]
    assert plan.rows[0].saving is not None
    assert plan.rows[0].saving < 0


def test_a_row_without_an_entry_is_a_gap_that_names_the_nearest_idea() -> None:
    idea = entry("technique/layout/x", applies_to=["conv2d"])
    plan = plan_of([idea], wish(row("convolution", "conv2d", 0.3, kernel_size=3)))
    assert [(gap.row, gap.nearest, gap.nearest_transfer) for gap in plan.gaps] == [
        ("convolution", "technique/layout/x", "technique")
    ]
    assert plan.gaps[0].reasons == ("no entry computes conv2d",)
    assert plan.gaps[0].axes == {"kernel_size": 3}


def test_code_that_needs_what_the_device_lacks_is_a_gap_to_port_never_run() -> None:
    native = entry("kernel/gemm_nvfp4/native", dtypes=["nvfp4"],
                   requires={"arch": ["sm_100a"], "features": ["fp4_mma", "tcgen05"]})  # fmt: skip
    plan = plan_of([native], wish(row("head", "gemm_nvfp4", dtypes=("nvfp4",))))
    assert [one.role for one in plan.rows] == ["technique"]
    assert not plan.rows[0].runnable
    assert plan.gaps[0].nearest == native.id
    assert "needs fp4_mma" in plan.gaps[0].reasons[0]


def test_code_to_port_gives_way_to_code_that_runs() -> None:
    native = entry("kernel/gemm/native", requires={"arch": ["sm_100a"], "features": ["tcgen05"]})
    plan = plan_of([native, GEMM], wish(row("products", "gemm")))
    assert ids(plan) == [GEMM.id]
    assert [(one.id, one.because) for one in plan.excluded] == [(native.id, "alternative")]
    assert plan.gaps == ()


def test_limits_are_evaluated_at_the_sizes_of_each_traffic() -> None:
    skinny = entry("kernel/gemm/skinny", limits={"m": {"max": 128}})
    sizes = (Size("decode", 3.0, {"m": 8}), Size("prefill", 1.0, {"m": 4096}))
    both = Wanted("products", "gemm", ("bfloat16",), sizes, 0.8, "measured", 1.0, None)
    plan = plan_of([skinny], wish(both))
    assert [(one.role, one.share) for one in plan.rows] == [("run", 0.6)]
    assert "port under prefill: m = 4096 is outside its limits: above 128" in plan.rows[0].notes


def test_a_limit_that_the_row_does_not_state_is_left_to_the_reader() -> None:
    plan = plan_of([entry("kernel/gemm/skinny", limits={"m": {"max": 128}})], wish(row("products", "gemm", n=64)))
    assert plan.rows[0].role == "run"
    assert "products: check its limits on m, which the row does not state" in plan.rows[0].notes


def test_formats_that_an_entry_does_not_take_make_it_a_port() -> None:
    plan = plan_of([entry("kernel/gemm/half", dtypes=["float16"])], wish(row("products", "gemm")))
    assert [one.role for one in plan.rows] == ["port"]
    assert plan.gaps[0].reasons == ("kernel/gemm/half: takes float16; here it is bfloat16",)


def test_negative_results_and_withdrawn_entries_are_never_offered() -> None:
    bad = entry("kernel/gemm/bad", outcome="regression", negative={"condition": "Always.", "effect": "Slower."})
    gone = entry("kernel/gemm/gone", withdrawn="2026-01-01: wrong")
    plan = plan_of([bad, gone], wish(row("products", "gemm")))
    assert plan.rows == ()
    assert [(one.id, one.rows, one.effect) for one in plan.warnings] == [
        ("kernel/gemm/bad", ("products",), "regression: Slower.")
    ]


def test_a_refuted_entry_is_not_offered_where_it_was_refuted() -> None:
    cell: dict[str, Any] = {
        "device": "NVIDIA H100 80GB HBM3", "level": "documented", "state": "refuted", "regime": None, "stale": [],
        "notes": ["rejected on 2026-11-01: wrong_values"], "versions": {}, "pins": [], "same_code": True,
        "figures": [], "when": "2026-11-01T00:00:00Z", "records": [],
    }  # fmt: skip
    wrong = entry("kernel/gemm/wrong", cells=[cell])
    plan = plan_of([wrong], wish(row("products", "gemm")))
    assert [(one.because, one.reason) for one in plan.excluded] == [("refuted", "rejected on 2026-11-01: wrong_values")]
    assert plan.gaps[0].row == "products"


def test_a_license_that_forbids_the_use_excludes_an_entry_and_says_so() -> None:
    research = entry("kernel/gemm/research", license="CC-BY-NC-4.0")
    rows = row("products", "gemm")
    plan = plan_of([research], wish(rows))
    assert plan.rows == ()
    assert [(one.because, one.reason) for one in plan.excluded] == [
        ("license", "license CC-BY-NC-4.0 forbids commercial use")
    ]
    assert plan.gaps[0].nearest is None
    assert ids(plan_of([research], wish(rows, use="research"))) == [research.id]


def test_communication_is_offered_to_several_devices_alone() -> None:
    ring = entry("comm/all_reduce/ring", requires={"devices": 2})
    one = plan_of([ring], wish(row("products", "gemm")))
    assert one.rows == ()
    assert [(each.because, each.reason) for each in one.excluded] == [("devices", "needs 2 devices; the target has 1")]
    two = wish(row("products", "gemm"), count=2, parallelism={"tensor": 2})
    assert ids(plan_of([ring], two)) == [ring.id]
    experts = wish(row("products", "gemm"), count=2, parallelism={"expert": 2})
    assert ids(plan_of([ring], experts)) == []


def test_strategies_for_memory_that_the_target_does_not_have_are_not_offered() -> None:
    pages = entry("allocation/kv_block_pool/pages", applies_to=["paged_attention_decode"])
    arena = entry("allocation/workspace_plan/arena")
    pool = entry("allocation/graph_pool/pool", applies_to=["workspace_plan"], phase=["decode"])
    plan = plan_of([pages, arena, pool], wish(row("products", "gemm")))
    assert ids(plan) == [arena.id, pool.id]
    assert [one.row for one in plan.rows] == [None, None]
    assert "made for decode; here it is vision" in plan.rows[1].notes


def test_of_many_allocators_the_best_few_are_offered_and_the_others_named() -> None:
    many = [entry(f"allocation/workspace_plan/a{number}") for number in range(6)]
    recipe = entry("combination/step/x", uses=["allocation/workspace_plan/a5"])
    plan = plan_of([*many, recipe], wish(row("products", "gemm")))
    offered = [one for one in ids(plan) if one.startswith("allocation")]
    assert offered[0] == "allocation/workspace_plan/a5"
    assert len(offered) == 3
    assert {one.because for one in plan.excluded} == {"alternative"}


def test_an_entry_that_serves_several_rows_stands_once_with_their_shares_added() -> None:
    rows = wish(row("first", "gemm", 0.2), row("second", "gemm", 0.3), row("third", "gemm", None))
    plan = plan_of([GEMM], rows)
    assert [(one.row, one.also, one.share) for one in plan.rows] == [("second", ("first", "third"), 0.5)]
    assert [one.runnable for one in plan.coverage] == [(GEMM.id,)] * 3


def test_ideas_for_another_phase_are_left_out() -> None:
    decode = entry("technique/launch/x", applies_to=["gemm"], phase=["decode"])
    assert ids(plan_of([decode], wish(row("products", "gemm", phase="vision")))) == []
    assert ids(plan_of([decode], wish(row("products", "gemm", phase="decode")))) == [decode.id]


def test_an_earlier_campaign_on_the_target_is_named() -> None:
    run = entry("campaign/m/first", campaign={"target": "target/m/x", "reused": ["campaign/n/other"]})
    assert plan_of([run], wish(row("products", "gemm"))).notes == (
        "an earlier campaign on this target: campaign/m/first; it reused campaign/n/other",
    )


def test_a_target_without_rows_gets_what_concerns_the_step() -> None:
    plan = plan_of([NORM, entry("allocation/workspace_plan/arena")], wish())
    assert ids(plan) == ["allocation/workspace_plan/arena"]


OPERATORS = ("gemm", "layernorm", "softmax")
ENTRIES = st.lists(
    st.builds(
        lambda kind, operator, slug, arch, features, limit: entry(
            f"{kind}/{operator}/s{slug}",
            operator=operator,
            requires={"arch": [arch], "features": features},
            limits={"m": {"max": limit}},
        ),
        st.sampled_from(("kernel", "technique", "config")),
        st.sampled_from(OPERATORS),
        st.integers(0, 3),
        st.sampled_from(("sm_80", "sm_90", "sm_100a")),
        st.sampled_from(([], ["tcgen05"], ["fp4_mma"], ["wgmma"])),
        st.integers(1, 300),
    ),
    max_size=8,
    unique_by=lambda one: one.id,
)
ROWS = st.lists(
    st.builds(
        lambda number, operator, share, m: row(f"r{number}", operator, share, m=m),
        st.integers(0, 99),
        st.sampled_from(OPERATORS),
        st.one_of(st.none(), st.floats(0.001, 0.1)),
        st.integers(1, 300),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda one: one.name,
)


def _holds(plan: Plan, entries: dict[str, Known], device_features: frozenset[str]) -> None:
    missing = {gap.row for gap in plan.gaps}
    for one in plan.coverage:
        assert bool(one.runnable) != (one.row in missing)
    for item in plan.rows:
        if item.runnable:
            assert set(entries[item.id].facts.features) <= device_features
        assert 0 <= item.confidence <= 1


@given(ENTRIES, ROWS, st.sampled_from(("H100-SXM", "B200", "RTX 5090")))
def test_every_row_has_code_that_runs_or_is_a_gap(entries: list[Known], rows: list[Wanted], device: str) -> None:
    wanted = wish(*rows, device=device)
    _holds(plan_of(entries, wanted), {one.id: one for one in entries}, wanted.scope.features)


@given(ENTRIES, ROWS, st.randoms())
def test_the_order_of_entries_changes_nothing(entries: list[Known], rows: list[Wanted], mixer: random.Random) -> None:
    before = plan_of(entries, wish(*rows)).to_json()
    mixed = list(entries)
    mixer.shuffle(mixed)
    assert plan_of(mixed, wish(*rows)).to_json() == before


def test_of_many_entries_for_a_row_the_best_few_are_offered_and_every_row_keeps_its_own() -> None:
    many = [entry(f"kernel/gemm/k{number}") for number in range(9)]
    tuned = [
        entry(f"config/gemm/c{number}", operator="gemm", dtypes=["bfloat16"], tuned={"device": "NVIDIA B200"})
        for number in range(50)
    ]
    small = entry("kernel/layernorm/small")
    plan = plan_of([*many, *tuned, small], wish(row("products", "gemm", 0.9), row("norms", "layernorm", 0.001)))
    assert [one.kind for one in plan.rows].count("kernel") == 5
    assert [one.kind for one in plan.rows].count("config") == 4
    assert plan.coverage[1].runnable == (small.id,)
    assert len(plan.excluded) == 5 + 46


def test_parameters_tuned_at_these_sizes_on_this_device_are_exact_and_come_first() -> None:
    device = "NVIDIA H100 80GB HBM3"
    facts: dict[str, Any] = {"operator": "gemm", "dtypes": ["bfloat16"], "applies_to": []}
    here = entry("config/gemm/here", tuned={"device": device, "axes": {"n": 64}}, **facts)
    other = entry("config/gemm/a-other-size", tuned={"device": device, "axes": {"n": 128}}, **facts)
    plan = plan_of([other, here], wish(row("products", "gemm", n=64)))
    assert [(one.id, one.role, one.transfer) for one in plan.rows] == [
        (here.id, "run", "exact"),
        (other.id, "tune", "retune"),
    ]
    assert plan.rows[1].reasons == ("tuned at n = 128; here n = 64",)
    assert plan.gaps[0].reasons == ("no entry computes gemm",)
