"""The brief: never longer than its budget, most valuable first, nothing in it that commands a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.models.plan import Plan, Reported
from kb.planning import Forecast, Tally
from kb.planning.brief import SMALLEST, brief_of, tokens_of
from tests.planning.made import entry, plan_of, row, wish

ROWS = [row(f"row {number}", f"op_{number:02d}", 0.02 * (30 - number) / 10) for number in range(30)]
MANY = plan_of([entry(f"kernel/op_{number:02d}/a") for number in range(25)], wish(*ROWS))


def text_of(plan: Plan, *, goals: tuple[str, ...] = ("fast",), accuracy: str = "No loss.") -> str:
    return brief_of(plan, goals=goals, traffic=["one at a time"], accuracy=accuracy)[0]


@given(st.integers(SMALLEST, 6000))
def test_it_never_exceeds_its_budget(budget: int) -> None:
    assert tokens_of(text_of(MANY.with_(budget_tokens=budget))) <= budget


@pytest.mark.parametrize("length", [10, 3_000, 100_000])
def test_goals_of_any_length_do_not_break_the_budget(length: int) -> None:
    plan = MANY.with_(budget_tokens=SMALLEST)
    assert tokens_of(text_of(plan, goals=("x" * length,), accuracy="y" * length)) <= SMALLEST


def test_a_larger_budget_says_more_and_what_is_left_out_is_counted() -> None:
    short, long = (text_of(MANY.with_(budget_tokens=budget)) for budget in (1500, 20_000))
    assert short.count("**kernel/") < long.count("**kernel/") == 25
    assert "more entries, in `seed.json`." in short
    assert "more entries" not in long


def test_the_most_valuable_comes_first_and_gaps_keep_their_place() -> None:
    text = text_of(MANY.with_(budget_tokens=1500))
    assert text.index("kernel/op_00/a") < text.index("kernel/op_01/a")
    assert "## Gaps" in text


def test_the_named_entries_are_those_of_the_text() -> None:
    text, named = brief_of(MANY.with_(budget_tokens=1500), goals=[], traffic=[], accuracy="")
    assert named == tuple(one.id for one in MANY.rows if f"**{one.id}**" in text)


def test_an_unknown_gain_is_called_unknown_and_a_known_one_has_its_interval() -> None:
    known = entry("kernel/gemm/a", tally=Tally(Reported(won=2, lost=1), won=2.0, lost=1.0))
    plan = plan_of(
        [known, entry("kernel/layernorm/a")],
        wish(row("p", "gemm", 0.5), row("n", "layernorm", 0.0004)),
        {(known.id, "p"): Forecast(1.5, 1.2, 1.9, "predicted")},
    )
    text = text_of(plan)
    assert "gain 1.50x [1.20, 1.90] (predicted)" in text
    assert "gain unknown" in text
    assert "share under 0.1% (measured)" in text
    assert "Used before: 2 won, 0 neutral, 1 lost, 0 not applied." in text


def test_what_would_command_a_terminal_is_neutralised() -> None:
    plan = plan_of([entry("kernel/gemm/a")], wish(row("p \x1b[31m\u202e", "gemm")))
    assert "\x1b" not in text_of(plan)
    assert "\u202e" not in text_of(plan)


def test_an_empty_plan_still_says_how_to_judge() -> None:
    text = text_of(plan_of([], wish()))
    assert "kb judge candidate.py --operator OPERATOR" in text
    assert "## Work" not in text
