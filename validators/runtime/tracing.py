"""Two looks at a candidate on a GPU, in a worker that is not judged: which kernels ran, and are equal calls equal."""

from collections.abc import Sequence
from typing import Any

import torch

from kb.validators.operators.spec import DTYPES
from kb.validators.runtime import replies
from kb.validators.runtime.conversation import Conversation
from kb.validators.runtime.expectation import Expectation
from kb.validators.runtime.plan import Case
from kb.validators.runtime.worker import Worker

_MOST = 6
"""Most workloads that are looked at."""


def observe(
    worker: Worker, talk: Conversation, expectation: Expectation, cases: Sequence[Case], limit_s: float
) -> dict[str, Any]:
    """Call each case twice with equal inputs, then once under the profiler.

    Args:
        worker: One of its own, with the candidate loaded.
        talk: Places inputs and reads results.
        expectation: Has the inputs.
        cases: At most six of them are looked at, those with most results first.
        limit_s: For one call.

    Returns:
        ``kernels``: rows of ``kernels.recorded``; ``determinism``: for each case ``bitwise``, and ``max_difference``
        between the two results where they differ (None if they cannot be subtracted).

    Raises:
        WorkerEndedError: The worker ended.
        ForgedReplyError: It answered something else.
    """
    rows: list[list[Any]] = []
    determinism: list[dict[str, Any]] = []
    sized = [(sum(one.numel() for one in expectation.case(case.index).outputs), case) for case in cases]
    for _, case in sorted(sized, key=lambda pair: -pair[0])[:_MOST]:
        expected = expectation.case(case.index)
        found = []
        for _turn in range(2):
            message, _ = talk.message(case, expected)
            reply = worker.ask({**message, "op": "call"}, limit_s=limit_s)
            if replies.failure(reply) is not None:
                break
            found.append(talk.collect(reply, case, expected)[0])
        if len(found) == 2:
            determinism.append({"workload": case.workload, **_difference(talk, case, found[0], found[1])})
        message, _ = talk.message(case, expected)
        rows += replies.kernel_rows(worker.ask({**message, "op": "profile"}, limit_s=limit_s))
    return {"kernels": rows, "determinism": determinism}


def _difference(talk: Conversation, case: Case, one: list[bytes], other: list[bytes]) -> dict[str, Any]:
    if one == other:
        return {"bitwise": True, "max_difference": 0.0}
    worst: float | None = None
    for which, (a, b) in enumerate(zip(one, other, strict=False)):
        dtype = DTYPES[talk.wanted(case, which)]
        pair = [torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(dtype).to(torch.float64) for raw in (a, b)]
        gap = float(torch.nan_to_num(pair[0] - pair[1]).abs().max())
        worst = gap if worst is None else max(worst, gap)
    return {"bitwise": False, "max_difference": worst}
