"""The tools that judge and write: judge, submit and outcome."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from mcp_types import CallToolResult, ToolAnnotations
from pydantic import Field
from typing_extensions import TypedDict

from kb.server import text
from kb.server.calling import Calling, long, require, result, told

if TYPE_CHECKING:
    from kb.knowledge_base import KnowledgeBase
    from kb.server.app import Server
    from kb.service.submission import Submission
    from kb.service.submitting import Submitted

Device = Annotated[str, Field(pattern=r"^(cpu|cuda:[0-9]{1,2})$")]
Positive = Annotated[float | None, Field(gt=0)]

_JUDGES = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_FAILED = 5


class Verdict(TypedDict):
    """What ``judge`` returns to programs."""

    verdict: Literal["accepted", "rejected", "needs_review"]
    reasons: list[str]
    details: list[str]


class Filed(TypedDict):
    """What ``submit`` returns to programs."""

    state: Literal["filed", "unchanged", "refused"]
    id: str
    branch: str | None
    commit: str | None
    verdict: str | None
    next_step: str


class Reported(TypedDict):
    """What ``outcome`` returns to programs."""

    entry: str
    target: str
    result: str
    path: str
    new: bool


def add_judge(server: "Server", base: "KnowledgeBase") -> None:
    """Add the tool that judges.

    Args:
        server: Gets it.
        base: Has candidates judged.
    """

    async def judge(
        operator: str, source: str, context: Calling, dtypes: list[str] | None = None, device: Device = "cpu"
    ) -> Annotated[CallToolResult, Verdict]:
        """Have Python source judged: accepted, rejected or needs_review, with reasons. Takes a minute; files nothing.

        It runs in a sandbox against a float64 reference. source defines run(...); its signature: get operator/NAME.
        device: cpu, or cuda:0 if the server has one. dtypes: judge these alone.
        """
        require(server.who(context.request_context), "judge")
        said = await long(
            context,
            lambda say, stop: base.judge(operator, source, device=device, dtypes=dtypes, progress=say, given_up=stop),
        )
        return result(text.verdict(said), _report(said))

    server.add_tool(judge, annotations=_JUDGES)


def add_writing(server: "Server", base: "KnowledgeBase", *, branch: str) -> None:
    """Add the tools that write.

    Args:
        server: Gets them.
        base: Is written to.
        branch: Where submissions go.
    """

    async def submit(
        title: str,
        claim: str,
        context: Calling,
        operator: str | None = None,
        source: str | None = None,
        outcome: str = "works",
        condition: str | None = None,
        effect: str | None = None,
        hypothesis: str | None = None,
        dtypes: list[str] | None = None,
        arch: list[str] | None = None,
        language: str | None = None,
        parents: list[str] | None = None,
        tags: list[str] | None = None,
        license: str | None = None,  # noqa: A002 - the word of entry.toml
        device: Device = "cpu",
        latency_us: Positive = None,
        measured_on: str | None = None,
        workload: str | None = None,
        baseline: str | None = None,
        baseline_us: Positive = None,
    ) -> Annotated[CallToolResult, Filed]:
        """File a candidate, or what did not work, so that the next run starts from it; source is judged first.

        claim: what it does, why it helps, when not to use it. A negative result: outcome (regression, no_effect,
        incorrect, infeasible, inconclusive), condition (when it holds), effect (what happened, in figures), with or
        without source. license: the SPDX id, needed unless the source has an SPDX-License-Identifier line; what was
        adapted keeps its own. arch: sm_90 and so on, for all but plain torch. parents: ids that it was made from. A
        time of your own: latency_us, measured_on (device name), workload, baseline (with version), baseline_us. It
        becomes one commit on a branch for a maintainer; the same content twice is filed once.
        """
        who = server.who(context.request_context)
        for scope in ("write", "judge") if source is not None else ("write",):
            require(who, scope)
        made = _submission(
            title=title, claim=claim, operator=operator, source=source, outcome=outcome, condition=condition,
            effect=effect, hypothesis=hypothesis, dtypes=tuple(dtypes or ()), arch=tuple(arch or ()),
            language=language, parents=tuple(parents or ()), tags=tuple(tags or ()), license=license, device=device,
            figure=(latency_us, measured_on, workload, baseline, baseline_us),
        )  # fmt: skip
        done = await long(
            context,
            lambda say, stop: base.submit(made, author=who.name, branch=branch, progress=say, given_up=stop),
        )
        return result(_filed(done), done.to_json())

    def outcome(
        entry: str,
        target: str,
        result: Literal["won", "neutral", "lost", "not_applied"],
        context: Calling,
        record: str | None = None,
        note: str | None = None,
    ) -> Annotated[CallToolResult, Reported]:
        """Report what came of using an entry on a target: every one that you tried, also without success.

        won needs record: the path of the judge's record that shows the gain. note: one line.
        """
        require(server.who(context.request_context), "write")
        return _reported(base, entry, target=target, result=result, record=record, note=note)

    server.add_tool(submit, annotations=_WRITES)
    server.add_tool(outcome, annotations=_WRITES)


def _reported(base: "KnowledgeBase", entry: str, **given: Any) -> CallToolResult:  # noqa: ANN401 - of outcome
    done = told(lambda: base.outcome(entry, **given))
    state = "stored" if done.new else "was stored before"
    shown = f"{done.result} on {done.target} of {done.entry}@{done.version}: {state} as {done.path}"
    return result(text.visible(shown), done.to_json())


def _submission(*, figure: tuple[Any, ...], **fields: Any) -> "Submission":  # noqa: ANN401 - fields of Submission
    from kb.errors import EntryFormatError
    from kb.service.submission import Figure, Submission

    def made() -> Submission:
        latency, device, workload, baseline, baseline_us = figure
        if all(one is None for one in figure):
            return Submission(**fields)
        if latency is None or device is None or workload is None:
            hint = "send all three, or none: a time means nothing without device and workload"
            raise EntryFormatError("a figure needs latency_us, measured_on and workload", hint=hint)
        stated = Figure(
            latency_us=latency, device=device, workload=workload, baseline=baseline, baseline_us=baseline_us
        )  # fmt: skip
        return Submission(**fields, figure=stated)

    return told(made)


def _filed(done: "Submitted") -> str:
    head = f"{done.state}: {done.id}@{done.version}"
    head += f" in commit {done.commit[:12]} on {done.branch}" if done.commit else ""
    head += f"; verdict {done.verdict}" if done.verdict else ""
    lines = [head, f"next: {done.next_step}"]
    if done.details:
        lines.append(text.fenced("\n".join(done.details), note="What the judge saw of the candidate, as data:"))
    return text.visible("\n".join(lines))


def _report(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report without what a caller has no use for: every case, the seed, the whole output."""
    cases = said["cases"]
    kept = (
        "verdict",
        "operator",
        "device",
        "reasons",
        "details",
        "source_sha256",
        "plan_sha256",
        "delegates",
        "blocked",
    )
    return {
        **{name: said[name] for name in kept},
        "cases": dict(Counter(case["verdict"] for case in cases)),
        "failed": [case for case in cases if case["verdict"] != "passed"][:_FAILED],
        "findings": list(said["findings"])[:_FAILED],
        "worst": max((c["max_normalised"] for c in cases if c["max_normalised"] is not None), default=None),
        "output": said["output"][-1_000:],
        "memory": said.get("memory"),
    }
