"""The judge's books of blocks: who holds which bytes, and on which stream what comes after what.

Overlap is found here exactly, by arithmetic on offsets, whatever the contents of memory say.
"""

import bisect
from dataclasses import dataclass

Problem = tuple[str, str]
"""Reason code and words."""


@dataclass(frozen=True)
class _Freed:
    """A block that is freed on its stream, but not yet for every other one."""

    start: int
    end: int
    index: int
    stream: int
    time: int
    """The stream's time at the free."""


class Ledger:
    """Blocks of one trace.

    Args:
        capacity: Bytes that may be handed out; None where blocks are addresses of a strategy's own memory.
        alignment: Every block starts on a multiple of it, in bytes.
        streams: How many streams there are.
    """

    def __init__(self, capacity: int | None, alignment: int, streams: int = 1) -> None:
        self.capacity, self.alignment = capacity, alignment
        self.live: dict[int, tuple[int, int]] = {}
        """Index to (start, end) of each live block."""
        self.live_bytes = self.live_peak = 0
        self._sorted: list[tuple[int, int, int]] = []
        self._freed: list[_Freed] = []
        self._times = [[0] * streams for _ in range(streams)]
        self._ever: list[tuple[int, int]] = []

    def place(self, index: int, offset: int, size: int, stream: int = 0) -> Problem | None:
        """Enter a block; returns what is wrong with its place, and enters it only if nothing is."""
        end = offset + size
        if offset < 0 or (self.capacity is not None and end > self.capacity):
            return "out_of_arena", f"block {index}: bytes {offset} to {end} of {self.capacity}"
        if offset % self.alignment:
            return "misaligned", f"block {index}: offset {offset} is no multiple of {self.alignment}"
        where = bisect.bisect_left(self._sorted, (offset, end, index))
        around = self._sorted[max(0, where - 1) : where + 1]
        for start, stop, other in around:
            if start < end and offset < stop:
                return "overlapping_blocks", f"block {index} at {offset} to {end} meets live block {other} at {start}"
        for one in self._freed:
            if one.start < end and offset < one.end and self._times[stream][one.stream] < one.time:
                where_freed = f"freed on stream {one.stream}, reused on stream {stream} without a wait"
                return "unordered_reuse", f"block {index} takes bytes of block {one.index}, {where_freed}"
        self._sorted.insert(where, (offset, end, index))
        self.live[index] = (offset, end)
        self._ever.append((offset, -(-end // self.alignment) * self.alignment))
        self.live_bytes += size
        self.live_peak = max(self.live_peak, self.live_bytes)
        self._tick(stream)
        return None

    def free(self, index: int, stream: int = 0) -> None:
        """Take a live block out; other streams may have its bytes only after they have waited."""
        start, end = self.live.pop(index)
        self._sorted.remove((start, end, index))
        self.live_bytes -= end - start
        self._tick(stream)
        if len(self._times) > 1:
            self._freed.append(_Freed(start, end, index, stream, self._times[stream][stream]))
            self._freed = [one for one in self._freed if any(row[one.stream] < one.time for row in self._times)]

    def wait(self, stream: int, on: int) -> None:
        """Order a stream after all that another one was given so far."""
        self._times[stream] = [max(a, b) for a, b in zip(self._times[stream], self._times[on], strict=True)]

    def _tick(self, stream: int) -> None:
        self._times[stream][stream] += 1

    def touched_bytes(self) -> int:
        """Return how many bytes were part of a block at any time, sizes rounded up to the alignment."""
        total, reached = 0, None
        for start, end in sorted(self._ever):
            if reached is None or start > reached:
                total += end - start
                reached = end
            elif end > reached:
                total += end - reached
                reached = end
        return total

    def highest(self) -> int:
        """Return the end of the highest block there ever was."""
        return max((end for _, end in self._ever), default=0)
