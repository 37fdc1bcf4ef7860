"""One pool for KV pages and recurrent-state slots: slabs of one slot, each cut into pages on demand.

Protocol of ``kv_block_pool``; a model without recurrent state gets slabs of one page.
"""

PAGE_TOKENS = 16

Copies = list[tuple[int, int, int]]


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
        self._partial: set[int] = set()  # slabs of which some pages are free
        self._count = 0  # free pages in such slabs

    def available(self, kind: str) -> int:
        """Return how many pages (``kv``) or slots (``state``) could be given now."""
        if kind == "state":
            return len(self._free_slabs)
        return len(self._free_slabs) * self.pages_per_slab + self._count

    def take(self, kind: str, count: int) -> list[int]:
        """Give pages or slots, or raise MemoryError and give none."""
        if count > self.available(kind):
            raise MemoryError(f"{count} of {kind}, {self.available(kind)} could be given")
        if kind == "state":
            return [self._free_slabs.pop() * self.slab_bytes for _ in range(count)]
        offsets: list[int] = []
        while len(offsets) < count:
            if self._partial:
                # The fullest slab first: the others get the chance to run empty and become slots again.
                slab = min(self._partial, key=lambda s: (len(self._free_pages[s]), s))
            else:
                slab = self._free_slabs.pop()
                start = slab * self.slab_bytes
                self._free_pages[slab] = [start + i * self.page_bytes for i in reversed(range(self.pages_per_slab))]
                self._count += self.pages_per_slab
                self._partial.add(slab)
            offsets.append(self._free_pages[slab].pop())
            self._count -= 1
            if not self._free_pages[slab]:
                self._partial.remove(slab)
        return offsets

    def give(self, kind: str, offset: int) -> None:
        """Take a page or slot back; a slab whose last page returns is whole again."""
        slab = offset // self.slab_bytes
        if kind == "kv":
            self._free_pages[slab].append(offset)
            self._partial.add(slab)
            self._count += 1
            if len(self._free_pages[slab]) < self.pages_per_slab:
                return
            del self._free_pages[slab]
            self._partial.remove(slab)
            self._count -= self.pages_per_slab
        self._free_slabs.append(slab)


class Pool:
    """Sequences over one ``SlabPool``; copies share full pages."""

    page_tokens = PAGE_TOKENS

    def __init__(self, capacity_bytes: int, token_bytes: int, slot_bytes: int, max_tokens: int) -> None:
        """Make the slabs.

        Args:
            capacity_bytes: Bytes of the whole pool.
            token_bytes: Bytes of one token's keys and values over all layers.
            slot_bytes: Bytes of one sequence's recurrent state; best a multiple of a page.
            max_tokens: No sequence becomes longer.
        """
        self._pool = SlabPool(capacity_bytes, PAGE_TOKENS * token_bytes, slot_bytes)
        self._slot_bytes = slot_bytes
        self._readers: dict[int, int] = {}
        self._tables: dict[int, list[int]] = {}
        self._tokens: dict[int, int] = {}
        self._slot: dict[int, int] = {}

    def admit(self, request: int, tokens: int, keys: tuple[int, ...]) -> int:
        """Give a slot first, since slots run out first, then pages; both or MemoryError."""
        self._give(request, -(-tokens // PAGE_TOKENS), [])
        self._tokens[request] = tokens
        return 0

    def _give(self, request: int, pages: int, shared: list[int]) -> list[int]:
        slots = self._pool.take("state", 1) if self._slot_bytes else []
        try:
            own = self._pool.take("kv", pages)
        except MemoryError:
            for one in slots:
                self._pool.give("state", one)
            raise
        if slots:
            self._slot[request] = slots[0]
        for page in [*shared, *own]:
            self._readers[page] = self._readers.get(page, 0) + 1
        self._tables[request] = shared + own
        return own

    def append(self, request: int, tokens: int) -> Copies:
        """Make room for more tokens."""
        total = self._tokens[request] + tokens
        own = self._pool.take("kv", max(0, -(-total // PAGE_TOKENS) - len(self._tables[request])))
        self._readers.update(dict.fromkeys(own, 1))
        self._tables[request] += own
        self._tokens[request] = total
        return []

    def fork(self, parent: int, child: int) -> Copies:
        """Let a copy read the full pages and give it a last page and a state of its own."""
        full = self._tokens[parent] // PAGE_TOKENS
        shared, partial = self._tables[parent][:full], self._tables[parent][full:]
        own = self._give(child, len(partial), shared)
        self._tokens[child] = self._tokens[parent]
        copies = [(source, target, self._pool.page_bytes) for source, target in zip(partial, own, strict=True)]
        if self._slot_bytes:
            copies.append((self._slot[parent], self._slot[child], self._slot_bytes))
        return copies

    def free(self, request: int) -> None:
        """Take back what a sequence holds."""
        for page in self._tables.pop(request):
            self._readers[page] -= 1
            if not self._readers[page]:
                del self._readers[page]
                self._pool.give("kv", page)
        del self._tokens[request]
        if self._slot_bytes:
            self._pool.give("state", self._slot.pop(request))

    def table(self, request: int) -> list[int]:
        """Return the byte offset of each page, in the order of the tokens."""
        return self._tables[request]

    def slot(self, request: int) -> int | None:
        """Return the byte offset of the recurrent state."""
        return self._slot.get(request)
