"""What the judge says: verdict, reason codes, cases, layers. Frozen values; JSON on request."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

ACCEPTED, REJECTED, NEEDS_REVIEW = "accepted", "rejected", "needs_review"

REASONS: Mapping[str, str] = {
    "wrong_values": "a result differs from the float64 reference by more than the operator's error bound",
    "wrong_shape": "a result has another shape, or there are too many or too few results",
    "wrong_dtype": "a result has another dtype, or is no plain tensor",
    "build_failed": "the candidate cannot be loaded",
    "crashed": "the candidate raised, or its process ended",
    "timed_out": "the candidate did not answer in time",
    "memory_limit": "the candidate used more memory than it may",
    "disk_limit": "the candidate wrote more than it may",
    "input_changed": "the candidate wrote to its inputs",
    "aliases_input": "a result shares memory with an input",
    "late_write": "a result changed after run had returned",
    "side_stream": "a result was not ready in the order of the stream on which run was called",
    "late_build": "the candidate needed a compiler in a judged call, where no process may be started",
    "bad_memory_access": "compute-sanitizer found an access out of bounds, a race or a read of unwritten memory",
    "reused_result": "a result was overwritten by a later call: it was no new tensor",
    "lazy_result": "a result is not a plain tensor but a subclass or a wrapper",
    "busy_after_return": "the process went on computing after run had returned",
    "threads_left": "every call left another thread behind",
    "wrote_files": "the candidate left files behind",
    "forged_protocol": "the worker sent something that is no message of the protocol",
    "forbidden_call": "the candidate tried a system call that it has no use for",
    "changed_environment": "the candidate changed process-wide state or replaced a function of its host",
    "idle_kernel": "a kernel of the candidate's own can be left out without changing the result",
    "fallback_hides_kernel": "a kernel's path always fails or can fail, and a fallback does the work",
    "replay_stopped": "the ghost replay came to no end: the candidate behaved otherwise in it",
    "static_finding": "the source has a construct that deserves a look",
    "exited": "the worker's process ended by itself",
    "clocks_disagree": "the worker's own clock does not fit the judge's: the timing counts for nothing",
    "below_floor": "a time that the machine cannot reach by its own measured peaks: the timing counts for nothing",
    "late_results": "results were not there when a batch was over, and had to be waited for: likewise",
    "baseline_disturbed": "the baseline was slower beside the candidate than alone: likewise",
    "cache_not_cold": "the caches were not swept before cold batches: likewise",
    "degenerate_output": "a model's text has far fewer distinct tokens than the original's from the same numbers",
    "diverges_from_original": "a model's distributions are farther from the original's than its weight format explains",
    "wrong_tokens": "a model drew tokens that the original would not have drawn from the same uniform numbers",
    "overlapping_blocks": "two blocks share bytes while both are live",
    "unordered_reuse": "a block was reused on a stream that was not ordered after its last use",
    "lost_contents": "what was written to a live block is not there any more",
    "out_of_arena": "a block lies outside the memory that it may use",
    "misaligned": "a block does not start on a multiple of the alignment",
    "wrong_answer": "an answer has not the form of the contract",
    "refused_early": "the strategy ran out of memory although several times the lower bound was there",
    "bad_out_of_memory": "running out of memory raised another error than MemoryError, or memory was lost by it",
    "over_budget": "a plan takes more than its budget, or gives up although the budget suffices",
    "memory_outside_meter": "more memory was seen from outside than the strategy states or a planner has a use for",
    "memory_not_there": "less memory was seen from outside than the live blocks take",
    "too_few_bytes": "fewer bytes went between the ranks than any dense scheme of the stated precision has to move",
    "wire_precision": "what is said of the precision on the wire is unknown, or the operator admits none",
    "left_on_wire": "something was sent or signalled that nobody took: the next call would have taken it",
    "unfinished_transfer": "run returned on a rank before its own transfers were complete",
    "bare_collective": "the library's own version of the operator does the work: there is no scheme",
    "wrong_place": "a block is not on the device that was asked for, or not where the others are",
}
"""Reason codes and what they mean."""


@dataclass(frozen=True)
class CaseResult:
    """One call of the candidate."""

    axes: Mapping[str, int]
    dtype: str
    law: str
    contents: str
    verdict: str
    """``passed``, ``wrong_shape``, ``wrong_dtype``, ``wrong_values``, ``crashed``, ``timed_out`` or ``cheated``."""
    max_normalised: float | None = None
    """Worst error over its bound, over all outputs; at most 1 passes."""
    detail: str = ""


@dataclass(frozen=True)
class Report:
    """All that the judge says of one candidate."""

    operator: str
    verdict: str
    reasons: tuple[str, ...]
    details: tuple[str, ...]
    """One line a reason, in words."""
    cases: tuple[CaseResult, ...]
    source_sha256: str
    plan_sha256: str | None
    master_seed: str | None
    """Hexadecimal; revealed after the run."""
    sandbox: Mapping[str, Any]
    blocked: tuple[str, ...]
    """System calls that the candidate tried and was refused."""
    findings: tuple[Mapping[str, Any], ...]
    """What the syntax tree shows; never decides alone."""
    delegates: tuple[str, ...]
    """Library calls that do some of the work; legal, and said."""
    ghosts: Mapping[str, Any]
    output: str
    """Tail of what the candidate printed, escaped."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    device: str = "cpu"
    """``cpu`` or ``cuda:N``."""
    kernels: Mapping[str, Any] = field(default_factory=dict)
    """What ran on the device and whose it was, and how results of equal inputs differed; empty on a CPU."""
    sanitizer: Mapping[str, Any] = field(default_factory=dict)
    """compute-sanitizer's tools and what each found; empty where it did not run."""
    timing: tuple[Mapping[str, Any], ...] = ()
    """Measurements, if any were asked for; a judgement of values alone has none."""
    memory: Mapping[str, Any] | None = None
    """For allocation strategies: the figures of every trace; see the operator's ``metrics``."""

    comm: Mapping[str, Any] | None = None
    """For communication schemes: transport, ranks, precision on the wire, and what was moved for every workload."""

    model: Mapping[str, Any] | None = None
    """For whole models: which original judged, its noise, the budget of the declared format, limits and distances."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def escaped(text: str, limit: int) -> str:
    """Make foreign text safe to show: bounded, one line, no control or invisible characters."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] if c != "\n" else "\\n" for c in text[: 4 * limit])
    return shown[:limit] + ("…" if len(shown) > limit or len(text) > 4 * limit else "")
