"""A pool of equal KV pages with a last-in-first-out free list and shared prefixes.

Protocol of ``kv_block_pool``: ``run(trace, capacity_bytes, page_bytes, slot_bytes)`` answers each event. Events are
``("kv", request, count)`` for pages, ``("state", request, count)`` for recurrent-state slots and ``("free", request)``
for all that a request holds. An answer is a list of byte offsets, or None if memory ran out, in which case nothing
was taken. Blocks that are live at once never overlap.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

Event = tuple[str, Hashable, int] | tuple[str, Hashable]


class PagePool:
    """Equal pages of one region, handed out by offset."""

    def __init__(self, capacity_bytes: int, page_bytes: int, *, base: int = 0) -> None:
        """Cut the region ``[base, base + capacity_bytes)`` into whole pages; a rest is left unused."""
        if page_bytes < 1 or capacity_bytes < 0:
            raise ValueError("page_bytes must be positive and capacity_bytes not negative")
        self.page_bytes = page_bytes
        # Reversed, so that the first pages handed out are the lowest.
        self.free_pages = [base + i * page_bytes for i in reversed(range(capacity_bytes // page_bytes))]
        self._references: dict[int, int] = {}
        self._held: dict[Hashable, list[int]] = {}

    def take(self, request: Hashable, count: int) -> list[int] | None:
        """Give ``count`` pages to a request, or None (and nothing) if there are not enough."""
        if count < 0:
            raise ValueError("count is negative")
        if count > len(self.free_pages):
            return None
        pages = [self.free_pages.pop() for _ in range(count)]
        self._references.update(dict.fromkeys(pages, 1))
        self._held.setdefault(request, []).extend(pages)
        return pages

    def share(self, owner: Hashable, request: Hashable, count: int) -> list[int]:
        """Let a request read the first ``count`` pages of another one (a common prefix)."""
        pages = self._held[owner][:count]
        if len(pages) < count:
            raise ValueError("the owner holds fewer pages")
        for page in pages:
            self._references[page] += 1
        self._held.setdefault(request, []).extend(pages)
        return pages

    def release(self, request: Hashable) -> int:
        """Take back what a request holds; return how many pages became free."""
        freed = 0
        # Last page first: a prefix, which is likely to be asked for again, is then overwritten last.
        for page in reversed(self._held.pop(request, [])):
            self._references[page] -= 1
            if not self._references[page]:
                del self._references[page]
                self.free_pages.append(page)
                freed += 1
        return freed


def run(
    trace: Iterable[Event], capacity_bytes: int, page_bytes: int, slot_bytes: int = 0, *, state_fraction: float = 0.5
) -> list[list[int] | None]:
    """Serve a trace with two fixed regions: pages below, state slots above.

    Args:
        trace: Events in order.
        capacity_bytes: Bytes of the whole pool.
        page_bytes: Bytes of a KV page over all layers.
        slot_bytes: Bytes of one request's recurrent state over all layers; 0 if the model has none.
        state_fraction: Share of the pool set aside for states, fixed when the server starts.

    Returns:
        One answer per event; an empty list for ``free``.
    """
    state_bytes = int(capacity_bytes * state_fraction) // slot_bytes * slot_bytes if slot_bytes else 0
    pages = PagePool(capacity_bytes - state_bytes, page_bytes)
    slots = PagePool(state_bytes, slot_bytes or 1, base=capacity_bytes - state_bytes)
    answers: list[list[int] | None] = []
    for event in trace:
        answers.append(_serve(event, pages, slots))
    return answers


def _serve(event: Sequence[Any], pages: PagePool, slots: PagePool) -> list[int] | None:
    kind, request = event[0], event[1]
    if kind == "free":
        pages.release(request)
        slots.release(request)
        return []
    if kind not in ("kv", "state"):
        raise ValueError(f"unknown event {kind!r}")
    return (pages if kind == "kv" else slots).take(request, event[2])
