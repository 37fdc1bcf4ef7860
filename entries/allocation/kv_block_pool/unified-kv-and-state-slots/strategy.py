"""One pool for KV pages and recurrent-state slots: slabs of one slot, each cut into pages on demand.

Follows the ``kv_block_pool`` protocol of ``run(trace, capacity_bytes, page_bytes, slot_bytes)``; see ``run``.
"""

from collections.abc import Hashable, Iterable

Event = tuple[str, Hashable, int] | tuple[str, Hashable]


class SlabPool:
    """Memory cut into slabs; a slab is free, one state slot, or a group of KV pages."""

    def __init__(self, capacity_bytes: int, page_bytes: int, slot_bytes: int) -> None:
        """Make slabs that hold one slot or at least one page; the rest of the capacity is left unused."""
        if page_bytes < 1 or slot_bytes < 0 or capacity_bytes < 0:
            raise ValueError("page_bytes must be positive, slot_bytes and capacity_bytes not negative")
        self.page_bytes = page_bytes
        self.slab_bytes = max(page_bytes, slot_bytes)
        self.pages_per_slab = self.slab_bytes // page_bytes
        self._free_slabs = list(reversed(range(capacity_bytes // self.slab_bytes)))
        self._free_pages: dict[int, list[int]] = {}  # slab cut into pages -> offsets that are free in it
        self._held: dict[Hashable, list[tuple[str, int]]] = {}

    def available(self, kind: str) -> int:
        """Return how many pages (``kv``) or slots (``state``) could be given now."""
        if kind == "state":
            return len(self._free_slabs)
        return len(self._free_slabs) * self.pages_per_slab + sum(map(len, self._free_pages.values()))

    def take(self, kind: str, request: Hashable, count: int) -> list[int] | None:
        """Give pages or slots, or None (and nothing) if there are not enough."""
        if kind not in ("kv", "state"):
            raise ValueError(f"unknown event {kind!r}")
        if count < 0:
            raise ValueError("count is negative")
        if count > self.available(kind):
            return None
        if kind == "state":
            offsets = [self._free_slabs.pop() * self.slab_bytes for _ in range(count)]
        else:
            offsets = self._take_pages(count)
        self._held.setdefault(request, []).extend((kind, offset) for offset in offsets)
        return offsets

    def _take_pages(self, count: int) -> list[int]:
        offsets: list[int] = []
        while len(offsets) < count:
            partial = [slab for slab, free in self._free_pages.items() if free]
            if partial:
                # The fullest slab first: the others get the chance to run empty and become slots again.
                slab = min(partial, key=lambda s: (len(self._free_pages[s]), s))
            else:
                slab = self._free_slabs.pop()
                start = slab * self.slab_bytes
                self._free_pages[slab] = [start + i * self.page_bytes for i in reversed(range(self.pages_per_slab))]
            offsets.append(self._free_pages[slab].pop())
        return offsets

    def release(self, request: Hashable) -> None:
        """Take back all that a request holds; a slab whose last page returns is whole again."""
        for kind, offset in self._held.pop(request, []):
            slab = offset // self.slab_bytes
            if kind == "kv":
                self._free_pages[slab].append(offset)
                if len(self._free_pages[slab]) < self.pages_per_slab:
                    continue
                del self._free_pages[slab]
            self._free_slabs.append(slab)


def run(trace: Iterable[Event], capacity_bytes: int, page_bytes: int, slot_bytes: int = 0) -> list[list[int] | None]:
    """Serve a trace from one pool.

    Args:
        trace: ``("kv", request, count)``, ``("state", request, count)`` or ``("free", request)``, in order.
        capacity_bytes: Bytes of the pool.
        page_bytes: Bytes of a KV page over all layers.
        slot_bytes: Bytes of one request's recurrent state over all layers; best a multiple of ``page_bytes``.

    Returns:
        One answer per event: byte offsets, None if memory ran out (nothing is taken then), an empty list for ``free``.
    """
    pool = SlabPool(capacity_bytes, page_bytes, slot_bytes)
    answers: list[list[int] | None] = []
    for event in trace:
        if event[0] == "free":
            pool.release(event[1])
            answers.append([])
        else:
            answers.append(pool.take(event[0], event[1], event[2]))  # type: ignore[misc]
    return answers
