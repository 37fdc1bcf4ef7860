"""The rounds of a job: every case is called on all ranks at once, and judged on every one of them."""

import math
import os
import random
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kb.validators.operators.spec import Operator
from kb.validators.runtime import processes, replies
from kb.validators.runtime.comm import meeting
from kb.validators.runtime.comm.crew import Answer, Crew
from kb.validators.runtime.comm.exchange import Traffic
from kb.validators.runtime.comm.frames import KINDS
from kb.validators.runtime.comm.trials import Trial, Trials
from kb.validators.runtime.conversation import Asked, Conversation, Reject
from kb.validators.runtime.errors import WorkerEndedError
from kb.validators.runtime.plan import Case, Plan
from kb.validators.runtime.report import CaseResult

_FAILURES = 3
"""After so many failed rounds the rest is not asked any more."""

_BROKEN = ("forged_protocol", "memory_limit")
"""Problems on the wire that explain why ranks failed."""

_SMALL_BYTES = 4096
"""Below so many bytes, what a transport adds of its own hides what a scheme saves."""


@dataclass
class Figures:
    """What was seen of one workload, over all of its rounds."""

    sent: list[int] = field(default_factory=list)
    """Payload of all ranks in a round, bytes."""
    most: list[int] = field(default_factory=list)
    """Payload that the busiest rank sent in a round, bytes."""
    messages: list[int] = field(default_factory=list)
    """Messages that the busiest rank sent in a round."""
    least: list[int] = field(default_factory=list)
    """What all ranks must send at least, bytes."""
    slowest_us: list[float] = field(default_factory=list)
    """From the question to the last rank's answer, by the judge's clock."""
    fastest_us: list[float] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return medians, as plain values; None for what the transport does not let be counted."""
        least, sent = statistics.median(self.least), _median(self.sent)
        return {
            "rounds": len(self.least),
            "sent_bytes": sent,
            "busiest_rank_bytes": _median(self.most),
            "busiest_rank_messages": _median(self.messages),
            "least_bytes": least,
            "over_least": sent / least if least and sent is not None else None,
            "slowest_rank_us": round(statistics.median(self.slowest_us), 1),
            "fastest_rank_us": round(statistics.median(self.fastest_us), 1),
        }


def _median(found: list[int]) -> float | None:
    return statistics.median(found) if found else None


class Rounds:
    """Runs a plan against a crew."""

    def __init__(self, crew: Crew, operator: Operator, plan: Plan, trials: Trials, *, limit_s: float) -> None:
        self.crew, self.operator, self.plan, self.trials, self.limit_s = crew, operator, plan, trials, limit_s
        self.results: list[CaseResult] = []
        self.changed: list[str] = []
        self.figures: dict[int, Figures] = {}
        self.collectives: Counter[str] = Counter()
        """The library's collectives, to how often a rank took part in one."""
        self.moved_by_library = 0
        """Bytes that went through a collective of the library that is the operator itself."""
        self.moved = 0
        self._exact = crew.transport == meeting.SWITCH
        self._metered = crew.transport != meeting.NCCL  # what goes over NVLink passes no socket
        self._dice = random.Random(os.urandom(16))  # noqa: S311 - chooses when to look, and nobody sees it
        self._talks = {
            rank: Conversation(one, crew.arenas[rank], operator, plan, trials.of_rank(rank), limit_s=limit_s)
            for rank, one in crew.workers.items()
        }

    def run(self, reject: Reject) -> None:
        """Make all calls; every failure is a reason."""
        watched = set(self._dice.sample(range(len(self.plan.cases)), min(3, len(self.plan.cases))))
        failures = 0
        for case in self.plan.cases:
            going_on, passed = self._round(case, reject)
            if passed and case.index in watched:
                self._idle(reject)
            failures += not passed
            if not going_on or failures >= _FAILURES:
                return
        for rank, talk in self._talks.items():
            try:
                reply = talk.worker.ask({"op": "state"}, limit_s=self.limit_s)
                self.changed += [one for one in replies.names(reply, "changed") if one not in self.changed]
            except WorkerEndedError as error:
                reject(error.reason, f"rank {rank}: {error.detail}")
            except replies.ForgedReplyError as error:
                reject("forged_protocol", str(error))

    def _round(self, case: Case, reject: Reject) -> tuple[bool, bool]:
        """Call one case on its ranks; returns (whether to go on at all, whether all was right)."""
        trial = self.trials[case.index]
        asked = {rank: self._talks[rank].prepare(case) for rank in trial.members}
        messages = {rank: {**one.message, "op": "call", "members": list(trial.members)} for rank, one in asked.items()}
        self.crew.begin()
        answers = self.crew.ask(messages, limit_s=self.limit_s)
        traffic = self.crew.finish()
        if any(one.failed for one in answers.values()):
            broken = [one for one in traffic.problems if one[0] in _BROKEN]
            for reason, detail in broken:
                reject(reason, f"{detail} (call {case.index})")
            self._failed(case, trial, answers, reject if not broken else lambda _reason, _detail: None)
            return False, False
        passed = self._concluded(case, trial, asked, answers, reject)
        problems = [*traffic.problems, *(self._too_few(trial, traffic) if passed else [])]
        for reason, detail in problems:
            reject(reason, f"{detail} (call {case.index})")
        if problems and passed:
            self.results[-1] = self._result(case, "cheated", self.results[-1].max_normalised, problems[0][1])
        self._note(case, trial, answers, traffic)
        return not problems, passed and not problems

    def _failed(self, case: Case, trial: Trial, answers: Mapping[int, Answer], reject: Reject) -> None:
        """Say of a round in which a rank raised, hung or died why it did; those that gave up with it are no reason."""
        first = [rank for rank, one in answers.items() if one.failed and not one.given_up]
        # Where a process ended, the others fail by that.
        first = [rank for rank in first if answers[rank].ended is not None] or first
        verdict = "crashed"
        if not first:
            # Nobody failed by itself: all waited, for one another or for too long.
            verdict = "timed_out"
            reject("timed_out", f"ranks {list(trial.members)} waited for one another (call {case.index})")
        for rank in first:
            one = answers[rank]
            try:
                detail = replies.failure(one.reply) if one.reply is not None else None
            except replies.ForgedReplyError as error:
                reject("forged_protocol", f"rank {rank}: {error}")
                continue
            reason = "crashed" if one.ended is None else one.ended.reason
            told = detail if one.ended is None else one.ended.detail
            verdict = "timed_out" if reason == "timed_out" else verdict
            reject(reason, f"rank {rank} of {list(trial.members)}: {told or reason} (call {case.index})")
        self.results.append(self._result(case, verdict, None, f"ranks {first}"))

    def _concluded(
        self, case: Case, trial: Trial, asked: Mapping[int, Asked], answers: Mapping[int, Answer], reject: Reject
    ) -> bool:
        """Judge what every rank returned; one result stands for the round, its worst rank."""
        found: list[tuple[int, CaseResult]] = []
        for rank in trial.members:
            talk, reply = self._talks[rank], answers[rank].reply or {}

            def named(reason: str, detail: str, rank: int = rank) -> None:
                reject(reason, f"rank {trial.members.index(rank)} of {len(trial.members)}: {detail}")

            try:
                talk.conclude(asked[rank], reply, named)
            except WorkerEndedError as error:
                named(error.reason, error.detail or "after the call")
                talk.results.append(self._result(case, "crashed", None))
            found.append((rank, talk.results[-1]))
        bad = next((one for _, one in found if one.verdict != "passed"), None)
        worst = max((one.max_normalised for _, one in found if one.max_normalised is not None), default=None)
        self.results.append(self._result(case, bad.verdict if bad else "passed", worst, bad.detail if bad else ""))
        return bad is None

    def _too_few(self, trial: Trial, traffic: Traffic) -> list[tuple[str, str]]:
        """Compare what was moved with what a scheme cannot avoid moving, rank by rank and in all."""
        least = trial.least
        if not self._metered or (not self._exact and least.total < _SMALL_BYTES):
            return []
        found = []
        for place, rank in enumerate(trial.members):
            for word, moved, floor in (
                ("sent", traffic.sent[rank], least.sent[place]),
                ("received", traffic.received[rank], least.received[place]),
            ):
                if moved < floor:
                    found.append(f"rank {place} of {len(trial.members)} {word} {moved} bytes, {floor} are the least")
        total = sum(traffic.sent.values())
        if total < least.total:
            found.append(f"all ranks sent {total} bytes, {least.total} are the least")
        return [("too_few_bytes", one) for one in found[:1]]

    def _note(self, case: Case, trial: Trial, answers: Mapping[int, Answer], traffic: Traffic) -> None:
        figures = self.figures.setdefault(case.workload, Figures())
        total = sum(traffic.sent.values())
        figures.least.append(trial.least.total)
        if self._metered:
            figures.sent.append(total)
            figures.most.append(max(traffic.sent[rank] for rank in trial.members))
        if self._exact:
            figures.messages.append(max(traffic.messages[rank] for rank in trial.members))
        times = [one.seconds * 1e6 for one in answers.values()]
        figures.slowest_us.append(max(times))
        figures.fastest_us.append(min(times))
        self.moved += total
        for kind, count in traffic.calls.items():
            name = KINDS[kind]
            self.collectives[name] += count
            if self.operator.name.startswith(name):
                self.moved_by_library += traffic.collectives[kind]

    def delegated_share(self) -> float:
        """Return the share of all traffic that went through the library's own version of the operator, 0 … 1."""
        return self.moved_by_library / self.moved if self.moved else math.nan

    def _idle(self, reject: Reject) -> None:
        """See that ranks that should have nothing to do have nothing to do."""
        ranks = self.crew.workers.values()
        found = processes.work_left(lambda: [pid for one in ranks for pid in one.pids()], workers=len(ranks))
        if found is not None:
            reject("busy_after_return", f"{found:.2f} s of work in {processes.WINDOW_S} s after all ranks had returned")

    def _result(self, case: Case, verdict: str, worst: float | None, detail: str = "") -> CaseResult:
        workload = self.plan.workloads[case.workload]
        return CaseResult(dict(workload.axes), workload.dtype, workload.law, case.contents, verdict, worst, detail)
