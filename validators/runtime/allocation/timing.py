"""The judge's clock over batches: many calls in one message, so that talking to the worker hardly counts.

What a batch hands out is entered in the books like everything else; a strategy that does less work when it is timed
hands out blocks that meet.
"""

import statistics
from typing import Any

from kb.validators.operators.allocation import BlockTrace, ServingTrace
from kb.validators.runtime.allocation.bench import Bench, CaseFailedError, rounded_up, wholes
from kb.validators.runtime.allocation.ledger import Ledger

_REPEATS = 5
_ALLOC, _FREE, _WAIT = 0, 1, 2
_AMPLE = 8


def of_blocks(bench: Bench, trace: BlockTrace, alignment: int, form: str) -> float:
    """Return the median time of a call of an online strategy on a trace, in µs.

    Args:
        bench: The worker.
        trace: The blocks.
        alignment: Of every block, in bytes.
        form: ``Allocator``, or ``DeviceAllocator`` whose blocks are not entered in the books here.

    Raises:
        CaseFailedError: What was handed out is wrong.
        WorkerEndedError: The worker is gone or too slow.
    """
    rows: list[tuple[int, int, int]] = []
    numbers: dict[int, int] = {}
    for kind, one, on in trace.events():
        if kind == "wait":
            rows.append((_WAIT, one, on))
        elif kind == "alloc":
            numbers[one] = len(numbers)
            rows.append((_ALLOC, trace.blocks[one].size, trace.blocks[one].stream))
        else:
            rows.append((_FREE, numbers[one], trace.blocks[one].user))
    codes, first, second = ([row[column] for row in rows] for column in range(3))
    capacity = rounded_up(_AMPLE * trace.live_peak(alignment) + (32 << 20), alignment)
    samples: list[float] = []
    for _ in range(_REPEATS):
        arguments: dict[str, Any] = {"capacity_bytes": capacity, "alignment": alignment}
        if form == "DeviceAllocator":
            kind = bench.device.partition(":")[0]
            arguments = {"device": kind, "limit_bytes": capacity, "alignment": alignment}
        bench.answered("open", form=form, arguments=arguments, buffer_bytes=0)
        began = bench.clock()
        reply = bench.answered("batch", codes=codes, first=first, second=second)
        samples.append((bench.clock() - began) / len(codes) * 1e6)
        if form == "Allocator":
            _check(trace, numbers, wholes(reply, "offsets"), Ledger(capacity, alignment, _streams(trace)))
    bench.answered("close")
    return statistics.median(samples)


def _streams(trace: BlockTrace) -> int:
    return 1 + max((max(block.stream, block.user) for block in trace.blocks), default=0)


def _check(trace: BlockTrace, numbers: dict[int, int], offsets: list[int], ledger: Ledger) -> None:
    if len(offsets) != len(trace.blocks):
        raise CaseFailedError("wrong_answer", f"{len(offsets)} offsets for {len(trace.blocks)} blocks, in a batch")
    for kind, one, on in trace.events():
        if kind == "wait":
            ledger.wait(one, on)
            continue
        block = trace.blocks[one]
        if kind == "free":
            ledger.free(one, block.user)
            continue
        problem = ledger.place(one, offsets[numbers[one]], block.size, block.stream)
        if problem is not None:
            raise CaseFailedError(problem[0], f"{problem[1]}, in a batch")


def of_pages(
    bench: Bench, trace: ServingTrace, calls: list[tuple[int, int, int]], keys: dict[str, list[int]]
) -> float | None:
    """Return the median time of a call of a pool, in µs, over the calls that were granted before.

    The batch stops at a place that only the judge knows, and the tables of what is alive there must not meet.

    Raises:
        CaseFailedError: What was handed out is wrong.
        WorkerEndedError: The worker is gone or too slow.
    """
    samples: list[float] = []
    arguments = {
        "capacity_bytes": trace.capacity_bytes, "token_bytes": trace.token_bytes, "slot_bytes": trace.slot_bytes,
        "max_tokens": trace.max_tokens,
    }  # fmt: skip
    for _ in range(_REPEATS):
        cut = bench.dice.randint(len(calls) * 3 // 4, len(calls))
        part = calls[:cut]
        reply = bench.answered("open", form="Pool", arguments=arguments, buffer_bytes=0)
        began = bench.clock()
        reply = bench.ask(
            "batch", codes=[row[0] for row in part], first=[row[1] for row in part], second=[row[2] for row in part],
            keys=keys if not trace.slot_bytes else {},
        )  # fmt: skip
        samples.append((bench.clock() - began) / len(part) * 1e6)
        if "out_of_memory" in reply:
            # Calls that were refused are not in the batch, so a pool that evicts may run out elsewhere.
            return None
        if "error" in reply:
            raise CaseFailedError("crashed", f"in a batch: {str(reply['error'])[:200]}")
        _tables(bench, trace, part)
    bench.answered("close")
    return statistics.median(samples)


def _tables(bench: Bench, trace: ServingTrace, part: list[tuple[int, int, int]]) -> None:
    tokens: dict[int, int] = {}
    for code, first, second in part:
        if code == 3:
            tokens[first] = second
        elif code == 4:
            tokens[first] += second
        elif code == 5:
            tokens[second] = tokens[first]
        else:
            del tokens[first]
    for number, count in tokens.items():
        reply: dict[str, Any] = bench.answered("table", request=number)
        table = wholes(reply, "table")
        if len(set(table)) != len(table) or not all(0 <= one < trace.capacity_bytes for one in table):
            raise CaseFailedError("overlapping_blocks", f"the table of sequence {number} of {count} tokens, in a batch")
