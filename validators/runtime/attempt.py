"""One attempt at one entry, the same on every machine: judge its code, take its times, and make the evidence."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kb.validators.operators.spec import Workload
from kb.validators.runtime import evidence
from kb.validators.runtime.judge import Options, judge


@dataclass(frozen=True)
class Attempt:
    """What came of it."""

    evidence: dict[str, Any]
    """As ``evidence_of`` makes it."""
    samples: dict[str, Any] | None
    """All samples of its timing, whose digest stands in the evidence; None if nothing was timed."""

    @property
    def side_file(self) -> bytes | None:
        """Bytes of the file that holds the samples beside the record."""
        return None if self.samples is None else samples_bytes(self.samples)


def attempt(
    order: Mapping[str, Any],
    source: bytes,
    *,
    device: str,
    facts: Mapping[str, Any],
    say: Callable[[str], None] | None = None,
) -> Attempt:
    """Judge an entry.

    Args:
        order: ``id``, ``version``, ``digest``, ``entry_point``, ``language`` and ``operator`` of the entry;
            ``uses`` and ``calls``, from which its plan is drawn; ``workloads``, plain, or None for the operator's own.
        source: The entry's code.
        device: ``cpu`` or ``cuda:N``.
        facts: What ``evidence.device_facts`` returned for it.
        say: Called with a phrase at each step.

    Returns:
        Evidence, not yet signed. Whatever a candidate does is a verdict.

    Raises:
        JudgeError: The judge cannot work here; says nothing of the candidate.
    """
    began = evidence.now_utc()
    low, high = order["calls"]
    workloads = None if order["workloads"] is None else [Workload(**one) for one in order["workloads"]]
    options = Options(device=device, calls=(low, high), workloads=workloads)
    report = judge(order["operator"], source, options=options, progress=say)
    made = evidence.evidence_of(report, order, began_utc=began, device=facts, uses=order["uses"], calls=order["calls"])
    return Attempt(made, None)


def samples_sha256(samples: Mapping[str, Any]) -> str:
    """Return the digest of samples: of the bytes of their side file."""
    return hashlib.sha256(samples_bytes(samples)).hexdigest()


def samples_bytes(samples: Mapping[str, Any]) -> bytes:
    """Return the bytes of a side file: sorted keys, no blanks, one final newline."""
    return (json.dumps(samples, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n").encode("ascii")
