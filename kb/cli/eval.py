"""``kb eval``: how good searches are, measured with graded queries, and the commands below it."""

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from kb.cli import eval_transfer, eval_uplift
from kb.cli.output import Json, RootOption, progress, say, table, write_json

if TYPE_CHECKING:
    from kb.service.evaluating import Measured

MODULES: tuple[ModuleType, ...] = (eval_transfer, eval_uplift)
"""Commands below ``kb eval``; each has ``register(group)``."""

_COLUMNS = {"ndcg_at_10": "nDCG@10", "mrr_at_10": "MRR@10", "recall_at_5": "recall@5", "hit_at_1": "hit@1"}


def evaluate(
    queries: Annotated[
        list[Path], typer.Argument(metavar="QUERIES.jsonl...", help='One {"query", "relevant"} a line; several files.')
    ],
    tier: Annotated[list[str] | None, typer.Option(help="bare, fts, semantic, chroma, rrf; more than once.")] = None,
    against: Annotated[str | None, typer.Option(metavar="TIER", help="Compare every tier with this one.")] = None,
    half: Annotated[str, typer.Option(help="tune, test or all.")] = "all",
    distractors: Annotated[int, typer.Option(metavar="N", help="Rank among N made-up entries.")] = 0,
    root: RootOption = None,
    json: Json = False,
) -> None:
    """Measure searches with graded queries: quality, latency, and 95 % intervals of differences."""
    from kb.config import find_root
    from kb.service.evaluating import among_distractors, evaluate, read_queries

    graded = [one for file in queries for one in read_queries(file, half=half)]
    tiers = list(dict.fromkeys([*(tier or ["bare", "fts"]), *([against] if against else [])]))
    with among_distractors(find_root(root), distractors, stage=progress) as base:
        found = evaluate(base, graded, tiers, stage=progress)
    other = next((one for one in found if one.tier == against), None)
    if json:
        shown = [one.to_json(other) for one in found]
        write_json({"queries": len(graded), "half": half, "distractors": distractors, "tiers": shown})
        return
    say(f"{len(graded)} queries ({half}), {distractors:,} made-up entries")
    table(["tier", *_COLUMNS.values(), "p50 ms", "p95 ms"], [_row(one) for one in found])
    if other is not None:
        rows = [_difference(one, other) for one in found if one is not other]
        table([f"against {other.tier}", *_COLUMNS.values()], rows)


def _row(one: "Measured") -> list[str]:
    figures = one.to_json()
    latency = [f"{value:.1f}" for value in figures["latency_ms"].values()]
    return [one.tier, *(f"{figures[name]:.3f}" for name in _COLUMNS), *latency]


def _difference(one: "Measured", other: "Measured") -> list[str]:
    intervals = one.against(other)
    return [one.tier] + [
        f"{intervals[name].mean:+.3f} [{intervals[name].low:+.3f}, {intervals[name].high:+.3f}]" for name in _COLUMNS
    ]


class _QueriesUnlessNamed(TyperGroup):
    """Runs ``queries`` where the first argument names no command, so that ``kb eval FILE`` needs no other word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's own parser has no public name
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["queries", *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    group = typer.Typer(cls=_QueriesUnlessNamed, no_args_is_help=True, help="Measure searches and predictions.")
    group.command("queries")(evaluate)
    for module in MODULES:
        module.register(group)
    app.add_typer(group, name="eval")
