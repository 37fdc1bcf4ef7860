"""Reuses a block of another stream as soon as it is ordered after that one, without waiting on the host.

operator: workspace_plan
"""

# mypy: ignore-errors

import bisect

LAWS = ("two_streams",)


class Allocator:
    """Free ranges with stamps (stream, time); a stream may take those whose stamps it is ordered after."""

    def __init__(self, capacity_bytes: int, alignment: int) -> None:
        if alignment < 1 or alignment & (alignment - 1):
            raise ValueError("alignment must be a power of two")
        self._capacity, self._alignment = capacity_bytes, alignment
        self._free: list[tuple[int, int, int, int]] = []  # (start, end, stream, time), sorted, not merged
        self._sizes: dict[int, int] = {}
        self._seen: dict[int, dict[int, int]] = {}  # stream -> what it is ordered after: stream -> time
        self._top = 0

    def alloc(self, size: int, stream: int) -> int:
        """Return the offset of the tightest run of neighbouring ranges that the stream may take, else grow."""
        padded = -(-max(size, 1) // self._alignment) * self._alignment
        self._tick(stream)
        best: tuple[int, int, int, int] | None = None  # (length, start, first, last)
        for start, end, first, last in self._runs(stream):
            if end - start >= padded and (best is None or (end - start, start) < best[:2]):
                best = (end - start, start, first, last)
            tail = (first, last) if end == self._top else None
            if tail and best is None and end - start < padded:
                return self._extend(start, padded, *tail)
        if best is None:
            return self._extend(self._top, padded, 0, 0)
        _, start, first, last = best
        taken = self._free[first:last]
        kept = [(max(one[0], start + padded), *one[1:]) for one in taken if one[1] > start + padded]
        self._free[first:last] = kept  # what is left keeps its own stamp
        self._sizes[start] = padded
        return start

    def _runs(self, stream: int) -> list[tuple[int, int, int, int]]:
        """Return (start, end, first, last) of neighbouring ranges that a stream may take, by their indices."""
        seen = self._seen[stream]
        runs: list[tuple[int, int, int, int]] = []
        for number, (start, end, owner, time) in enumerate(self._free):
            if owner != stream and seen.get(owner, 0) < time:
                continue
            if runs and runs[-1][3] == number and runs[-1][1] == start:
                runs[-1] = (runs[-1][0], end, runs[-1][2], number + 1)
            else:
                runs.append((start, end, number, number + 1))
        return runs

    def _extend(self, start: int, padded: int, first: int, last: int) -> int:
        if start + padded > self._capacity:
            raise MemoryError(f"{padded} bytes")
        del self._free[first:last]
        self._top = start + padded
        self._sizes[start] = padded
        return start

    def free(self, offset: int, stream: int) -> None:
        """Stamp a range with the stream that used it last; at once reusable there, elsewhere after a wait."""
        time = self._tick(stream)
        range_ = (offset, offset + self._sizes.pop(offset), stream, time)
        bisect.insort(self._free, range_)
        self._merge(stream)

    def _merge(self, stream: int) -> None:
        """Join neighbours of one stream under the later stamp: on that stream it makes no difference."""
        joined: list[tuple[int, int, int, int]] = []
        for one in self._free:
            last = joined[-1] if joined else None
            if last is not None and last[1] == one[0] and last[2] == one[2] == stream:
                joined[-1] = (last[0], one[1], stream, max(last[3], one[3]))
            else:
                joined.append(one)
        self._free = joined

    def wait(self, stream: int, on: int) -> None:
        """Order a stream after what another one was given so far, and after all that that one is ordered after."""
        self._tick(stream)
        self._tick(on)
        seen = self._seen[stream]
        for other, time in self._seen[on].items():
            seen[other] = max(seen.get(other, 0), time)

    def _tick(self, stream: int) -> int:
        seen = self._seen.setdefault(stream, {})
        seen[stream] = seen.get(stream, 0) + 1
        return seen[stream]
