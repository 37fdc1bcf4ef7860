"""How reasons become a verdict, for every family of operators: what rejects, and what asks for a look."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from kb.validators.runtime import report
from kb.validators.runtime.errors import JudgeError
from kb.validators.runtime.worker import Worker

SOURCE_BYTES = 1 << 20
"""Longest source that is looked at."""

REQUIRED = ("file_read", "file_write", "home_write", "network", "process", "signal")
"""Layers that must hold, or nothing is judged."""

MILD = frozenset(
    {
        "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "syslog", "memfd_create",
        "prlimit64", "setpriority", "sched_setscheduler", "sched_setparam", "sched_setattr", "ioprio_set", "utime",
        "utimes", "utimensat",
    }
)  # fmt: skip
"""Refused calls that a library may try without harm: they ask for a look instead of a rejection."""

_SOFT_CHANGES = frozenset({"num_threads", "cpu_rng", "environ", "grad_mode", "dispatcher"})
"""Changes of process-wide state that break the contract but forge nothing."""

_GROWTH = 6
"""So many calls, each with more threads than the one before, are a pattern."""


@dataclass
class Verdict:
    """Reasons as they come in."""

    reasons: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    review: list[str] = field(default_factory=list)

    def reject(self, reason: str, detail: str) -> None:
        """Note a reason for which the candidate is rejected."""
        self.reasons.append(reason)
        self.details.append(f"{reason}: {detail}")

    def doubt(self, reason: str, detail: str) -> None:
        """Note a reason for which somebody should look."""
        self.review.append(reason)
        self.details.append(f"{reason}: {detail}")

    def word(self) -> str:
        """Return the verdict."""
        if self.reasons:
            return report.REJECTED
        return report.NEEDS_REVIEW if self.review else report.ACCEPTED

    def on_changes(self, changed: Sequence[str]) -> None:
        """Judge what a worker says changed of its process-wide state."""
        hard = [name for name in changed if name not in _SOFT_CHANGES]
        soft = [name for name in changed if name in _SOFT_CHANGES]
        if hard:
            self.reject("changed_environment", report.escaped(", ".join(hard), 300))
        elif soft:
            self.doubt("changed_environment", report.escaped(", ".join(soft), 300))

    def on_threads(self, counts: Sequence[int]) -> None:
        """Judge the number of threads after each call: a pool stops growing, one thread a call never does."""
        if len(counts) >= _GROWTH and all(later > earlier for earlier, later in pairwise(counts)):
            self.doubt("threads_left", f"{counts[-1] - counts[0]} threads more after {len(counts) - 1} calls")

    def on_remains(self, worker: Worker, *, unbuilt: bool = False) -> None:
        """Judge what a worker leaves behind, however it fared: refused calls and files.

        Args:
            worker: Whose.
            unbuilt: Whether a compiler was refused, which leaves files half made.
        """
        for name in sorted(worker.blocked):
            if name in MILD:
                self.doubt("forbidden_call", f"{name} was refused")
            else:
                self.reject("forbidden_call", f"{name} was refused")
        patched = worker.patched()
        if patched:
            self.reject("changed_environment", report.escaped(f"code overwritten: {', '.join(patched)}", 300))
        left = worker.files_left()
        if left:
            say = self.doubt if unbuilt else self.reject
            say("wrote_files", report.escaped(", ".join(left), 200))


def require(layers: dict[str, Any]) -> None:
    """Judge nothing where the sandbox does not hold.

    Raises:
        JudgeError: A layer that is needed could be broken.
    """
    broken = [name for name in REQUIRED if not layers.get("verified", {}).get(name)]
    if broken:
        raise JudgeError(
            f"the sandbox does not hold here: {', '.join(broken)}",
            "the judge needs Linux with Landlock and seccomp: kb doctor",
        )
