"""What the conversations about blocks, pages and graphs have in common."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kb.validators.runtime import replies
from kb.validators.runtime.allocation.meters import DeviceMeter, HostMeter
from kb.validators.runtime.arena import Arena
from kb.validators.runtime.replies import ForgedReplyError
from kb.validators.runtime.worker import Worker

HOST_BYTES, HOST_BYTES_EACH = 24 << 20, 2 << 10
"""Host memory that a strategy may take for its books: so much, and so much more a block or request."""

_LARGEST = 1 << 62


class CaseFailedError(Exception):
    """A case is over: ``reason`` is a code of ``report.REASONS``."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


@dataclass
class Bench:
    """The worker under judgement, and what is measured around it."""

    worker: Worker
    arena: Arena
    device: str
    limit_s: float
    host: HostMeter
    gpu: DeviceMeter | None
    dice: random.Random
    clock: Callable[[], float]
    figures: list[dict[str, Any]] = field(default_factory=list)

    def ask(self, op: str, **message: Any) -> dict[str, Any]:  # noqa: ANN401 - plain JSON
        """Ask the worker; what it raised is in the answer.

        Raises:
            WorkerEndedError: The worker is gone or too slow.
        """
        return self.worker.ask({"op": op, **message}, limit_s=self.limit_s)

    def answered(self, op: str, **message: Any) -> dict[str, Any]:  # noqa: ANN401 - plain JSON
        """Ask the worker, and end the case if it raised anything.

        Raises:
            CaseFailedError: The candidate raised.
            WorkerEndedError: The worker is gone or too slow.
        """
        reply = self.ask(op, **message)
        if "out_of_memory" in reply:
            raise CaseFailedError("refused_early", f"{op} raised MemoryError")
        raise_failure(reply, "crashed", op)
        return reply

    def host_within(self, blocks: int) -> int:
        """Return the growth of the worker's host memory.

        Raises:
            CaseFailedError: It is more than books of so many blocks need.
        """
        grown = self.host.peak()
        if grown > HOST_BYTES + HOST_BYTES_EACH * blocks:
            raise CaseFailedError("memory_outside_meter", f"{grown >> 20} MiB of host memory for {blocks} blocks")
        return grown


def raise_failure(reply: dict[str, Any], reason: str, what: str) -> None:
    """End the case if a reply says that the candidate raised.

    Raises:
        CaseFailedError: It did.
    """
    try:
        detail = replies.failure(reply)
    except ForgedReplyError as error:
        raise CaseFailedError("forged_protocol", str(error)) from error
    if detail is not None:
        unfit = detail.startswith(("TypeError", "ValueError: not enough", "ValueError: too many"))
        raise CaseFailedError("wrong_answer" if unfit and reason == "crashed" else reason, f"{what}: {detail}")


def whole(reply: dict[str, Any], name: str) -> int:
    """Return a whole number of a reply.

    Raises:
        CaseFailedError: It is none, or out of all proportion.
    """
    value = reply.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not -_LARGEST < value < _LARGEST:
        raise CaseFailedError("wrong_answer", f"{name} is no whole number")
    return value


def wholes(reply: dict[str, Any], name: str, *, most: int = 1 << 20) -> list[int]:
    """Return a list of whole numbers of a reply.

    Raises:
        CaseFailedError: It is none, or too long.
    """
    values = reply.get(name)
    if not isinstance(values, list) or len(values) > most:
        raise CaseFailedError("wrong_answer", f"{name} is no list, or too long")
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool) or not -_LARGEST < value < _LARGEST:
            raise CaseFailedError("wrong_answer", f"{name} holds something that is no whole number")
    return values


def rounded_up(size: int, alignment: int) -> int:
    """Return the next multiple of the alignment."""
    return -(-size // alignment) * alignment
