"""The tools that only read: search, get and seed."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio.from_thread
from mcp_types import CallToolResult, ToolAnnotations
from pydantic import Field
from typing_extensions import TypedDict

from kb.errors import RetrievalError
from kb.models.hit import Answer, Hit
from kb.server import text
from kb.server.calling import Calling, long, result, told
from kb.server.hints import noted, stepwise, worded
from kb.values import plain, sha256

if TYPE_CHECKING:
    from kb.knowledge_base import KnowledgeBase
    from kb.models.plan import Plan
    from kb.server.app import Server

MOST_HITS = 50
"""Hits of one page."""

_MOST_PLACE = 1_000
_ROWS = 30
_READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)

Row = dict[str, Any]
Budget = Annotated[int, Field(ge=500, le=20_000)]


class Found(TypedDict):
    """What a search returns to programs."""

    hits: list[Row]
    next_cursor: str | None


class Entry(TypedDict):
    """What ``get`` returns to programs."""

    id: str


class Planned(TypedDict):
    """What ``seed`` returns to programs."""

    target: str
    rows: list[Row]
    gaps: list[Row]
    warnings: list[Row]


def add(server: "Server", base: "KnowledgeBase") -> None:
    """Add the tools.

    Args:
        server: Gets them.
        base: What they read.
    """

    def search(
        query: str,
        context: Calling,
        limit: Annotated[int, Field(ge=1, le=MOST_HITS)] = 8,
        cursor: str | None = None,
        kind: str | None = None,
        operator: str | None = None,
        dtype: str | None = None,
        device: str | None = None,
        arch: str | None = None,
        outcome: str | None = None,
        withdrawn: bool = False,
        detail: bool = False,
    ) -> Annotated[CallToolResult, Found]:
        """Find kernels, strategies, tuned parameters and negative results, in the words engineers use.

        Filters: kind (kernel, allocation, comm, config, technique, combination, target, campaign), operator (rmsnorm,
        or a family: moe), dtype (nvfp4, bf16), device (NVIDIA B200, H100, hopper) or arch (sm_90), outcome (works,
        regression, no_effect, incorrect, infeasible). Name your device: each hit then says how it carries over; in
        exact, recompile and retune its code runs there. detail = true says more; cursor continues a list.
        """
        filters = {
            "kind": kind, "operator": operator, "dtype": dtype, "arch": arch, "device": device, "outcome": outcome,
            "withdrawn": withdrawn,
        }  # fmt: skip
        mark = sha256(repr((query, sorted(filters.items(), key=str))).encode("utf-8", "replace")).hexdigest()[:8]
        first = told(lambda: _place(cursor, mark))
        most = min(first + limit + 1, _MOST_PLACE)
        found = told(lambda: base.search(query, limit=most, **filters))
        _tell_embedding(context, base)
        because = worded(found.empty_because, "tools")
        notes = noted(found.notes, "tools")
        page = found.with_(hits=found.hits[first : first + limit], empty_because=because, notes=notes)
        after = f"{first + limit}.{mark}" if len(found.hits) > first + limit else None
        shown = text.answer(page, detail=detail, first=first + 1, cursor=after)
        return result(shown, {**(page.to_json() if detail else _short(page)), "next_cursor": after})

    def get(
        id: str,  # noqa: A002 - the name that agents use
        version: Annotated[int | None, Field(ge=1)] = None,
        part: Literal["summary", "readme", "code", "evidence", "all"] = "all",
        device: str | None = None,
    ) -> Annotated[CallToolResult, Entry]:
        """Read one entry by its id from a search: summary (facts), readme, code, all of these, or evidence.

        evidence is what is proven, on which device, how fresh. id = operator/NAME gives the contract that the judge
        holds code of that operator to.
        """
        if id.startswith("operator/"):
            described = told(lambda: base.operator(id.partition("/")[2]))
            return result(text.fenced(_lines(described)), {"id": id, **described})
        if part == "evidence":
            proven = stepwise(asdict(told(lambda: base.evidence(id, device=device))), "tools")
            return result(text.evidence(proven), proven)
        found = told(lambda: base.get(id, version=version))
        return result(text.entry(found, found["contents"], part=part), _shown(found, part))

    async def seed(
        target: str,
        context: Calling,
        device: str | None = None,
        budget_tokens: Budget = 4_000,
        use: Literal["commercial", "research"] = "commercial",
    ) -> Annotated[CallToolResult, Planned]:
        """Plan the work on a target: what the store offers for each operator, its gaps, known dead ends.

        target is an id, or words such as: qwen3.6 nvfp4 b200. Call it first when you start on a deployment.
        """
        plan = await long(
            context, lambda _say, _stop: base.seed(target, device=device, budget_tokens=budget_tokens, use=use)
        )
        return result(text.fenced(_brief(plan)), _plan(plan.to_json()))

    for tool in (search, get, seed):
        server.add_tool(tool, annotations=_READ_ONLY)


def _tell_embedding(context: Calling, base: "KnowledgeBase") -> None:
    """Report to a client that asked for progress how far embedding is; the answer does not wait for it."""
    steps = base.resident.embedding
    if steps is not None:
        message = "embedding texts for search by meaning; this answer is by words alone"
        anyio.from_thread.run(context.report_progress, *steps, message)


def _place(cursor: str | None, mark: str) -> int:
    if cursor is None or not cursor.strip():
        return 0
    found = re.fullmatch(r"([0-9]{1,4})\.([0-9a-f]{8})", cursor.strip())
    if found is None or int(found.group(1)) >= _MOST_PLACE:
        raise RetrievalError(f"no cursor: {cursor[:40]!r}", hint="leave cursor out to begin; then use the one you get")
    if found.group(2) != mark:
        raise RetrievalError("the cursor is of another query", hint="repeat query and filters, or leave cursor out")
    return int(found.group(1))


def _short(page: Answer) -> dict[str, Any]:
    return {"hits": [_row(hit) for hit in page.hits], "empty_because": page.empty_because, "notes": list(page.notes)}


def _row(hit: Hit) -> Row:
    """Return what a program needs to go on from a hit; clients that show it to a model pay for every word."""
    row: Row = {"id": hit.id, "version": hit.version, "evidence": hit.evidence}
    if hit.evidence_device is not None:
        row["on"] = hit.evidence_device
    if hit.outcome != "works":
        row["outcome"] = hit.outcome
    if hit.transfer is not None:
        row["transfer"] = hit.transfer
    return row


def _shown(found: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Return an entry as plain JSON values, with what was asked for."""
    if part in ("readme", "code"):
        facts = {name: found[name] for name in ("id", "version", "title", "license", "outcome")}
        return {**facts, "readme": found["readme"]} if part == "readme" else {**facts, "contents": found["contents"]}
    left_out = {"contents", "readme"} if part == "summary" else set()
    return {name: plain(value) for name, value in found.items() if name not in left_out}


_PLAN_ROW = (
    "rank", "id", "version", "role", "row", "transfer", "share", "evidence", "freshness", "gain", "gain_from",
    "confidence", "license", "also",
)  # fmt: skip


def _brief(plan: "Plan") -> str:
    """Return the brief with its last steps as calls of tools in place of commands."""
    from kb.planning.brief import commands_of

    calls = (
        "judge: operator, source, device                     # values, in a sandbox",
        "submit: title, claim, operator, source, parents     # judged, then filed on a branch",
        f"outcome: entry, target = {plan.target}, result      # won, neutral, lost, not_applied",
    )
    brief = plan.brief.replace("\n".join(commands_of(plan)), "\n".join(calls))
    return brief.replace("`kb operators OP` shows", "get with id = operator/OP shows")


def _plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    rows = plan["rows"]
    head = {name: plan[name] for name in ("target", "version", "device", "device_count", "precision", "store", "notes")}
    return {
        **head,
        "rows": [{name: row[name] for name in _PLAN_ROW} for row in rows[:_ROWS]],
        "rows_left_out": max(0, len(rows) - _ROWS),
        "gaps": [{name: gap[name] for name in ("row", "operator", "share", "nearest")} for gap in plan["gaps"]],
        "warnings": [{name: one[name] for name in ("id", "rows", "holds")} for one in plan["warnings"]],
    }


def _lines(described: Mapping[str, Any]) -> str:
    lines = []
    for name, value in described.items():
        if isinstance(value, list):
            lines.append(f"{name}:")
            lines += [f"  {one}" for one in value]
        elif isinstance(value, Mapping):
            lines.append(f"{name}: {', '.join(f'{key} {inner}' for key, inner in value.items())}")
        else:
            lines.append(f"{name}: {value}")
    return text.cut("\n".join(lines), "see the structured result")
