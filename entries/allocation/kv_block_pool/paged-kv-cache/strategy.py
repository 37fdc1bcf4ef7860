"""A pool of equal KV pages with a last-in-first-out free list; copies share full pages; states in a region of their own.

Protocol of ``kv_block_pool``: a sequence is admitted whole or not at all, grows by tokens, forks and ends. Blocks that
are live at once never overlap; a page is shared only while nobody writes to it.
"""

PAGE_TOKENS = 16

Copies = list[tuple[int, int, int]]


class PagePool:
    """Equal pages of one region, handed out by offset, with a count of readers each."""

    def __init__(self, capacity_bytes: int, page_bytes: int, *, base: int = 0) -> None:
        """Cut the region ``[base, base + capacity_bytes)`` into whole pages; a rest is left unused."""
        if page_bytes < 1 or capacity_bytes < 0:
            raise ValueError("page_bytes must be positive and capacity_bytes not negative")
        self.page_bytes = page_bytes
        # Reversed, so that the first pages handed out are the lowest.
        self.free_pages = [base + i * page_bytes for i in reversed(range(capacity_bytes // page_bytes))]
        self._readers: dict[int, int] = {}

    def take(self, count: int) -> list[int]:
        """Give ``count`` pages, or raise MemoryError and give none."""
        if count > len(self.free_pages):
            raise MemoryError(f"{count} pages, {len(self.free_pages)} are free")
        pages = [self.free_pages.pop() for _ in range(count)]
        self._readers.update(dict.fromkeys(pages, 1))
        return pages

    def share(self, pages: list[int]) -> None:
        """Count one more reader of each page."""
        for page in pages:
            self._readers[page] += 1

    def release(self, pages: list[int]) -> None:
        """Count one reader less; a page without readers is free, the last page of a prefix first."""
        for page in reversed(pages):
            self._readers[page] -= 1
            if not self._readers[page]:
                del self._readers[page]
                self.free_pages.append(page)


class Pool:
    """Two fixed regions: pages below, state slots above."""

    page_tokens = PAGE_TOKENS

    def __init__(
        self, capacity_bytes: int, token_bytes: int, slot_bytes: int, max_tokens: int, *, state_fraction: float = 0.5
    ) -> None:
        """Split the memory, once and for all.

        Args:
            capacity_bytes: Bytes of the whole pool.
            token_bytes: Bytes of one token's keys and values over all layers.
            slot_bytes: Bytes of one sequence's recurrent state over all layers; 0 if the model has none.
            max_tokens: No sequence becomes longer.
            state_fraction: Share of the pool set aside for states.
        """
        state_bytes = int(capacity_bytes * state_fraction) // slot_bytes * slot_bytes if slot_bytes else 0
        self._pages = PagePool(capacity_bytes - state_bytes, PAGE_TOKENS * token_bytes)
        base = -(-(capacity_bytes - state_bytes) // 256) * 256 if slot_bytes else 0
        self._slots = PagePool(max(0, capacity_bytes - base), slot_bytes, base=base) if slot_bytes else None
        self._tables: dict[int, list[int]] = {}
        self._tokens: dict[int, int] = {}
        self._slot: dict[int, int] = {}

    def admit(self, request: int, tokens: int, keys: tuple[int, ...]) -> int:
        """Give a sequence all pages of its prompt and a slot, or raise MemoryError; nothing is found in a cache."""
        pages = self._pages.take(-(-tokens // PAGE_TOKENS))
        self._give_slot(request, pages)
        self._tables[request], self._tokens[request] = pages, tokens
        return 0

    def _give_slot(self, request: int, pages: list[int]) -> None:
        if self._slots is None:
            return
        try:
            self._slot[request] = self._slots.take(1)[0]
        except MemoryError:
            self._pages.release(pages)  # all or nothing
            raise

    def append(self, request: int, tokens: int) -> Copies:
        """Make room for more tokens."""
        total = self._tokens[request] + tokens
        missing = -(-total // PAGE_TOKENS) - len(self._tables[request])
        self._tables[request] += self._pages.take(missing) if missing > 0 else []
        self._tokens[request] = total
        return []

    def fork(self, parent: int, child: int) -> Copies:
        """Let a copy read the full pages and give it a last page and a state of its own."""
        full = self._tokens[parent] // PAGE_TOKENS
        shared, partial = self._tables[parent][:full], self._tables[parent][full:]
        own = self._pages.take(len(partial))
        self._give_slot(child, own)
        self._pages.share(shared)
        self._tables[child], self._tokens[child] = shared + own, self._tokens[parent]
        copies = [(source, target, self._pages.page_bytes) for source, target in zip(partial, own, strict=True)]
        if self._slots is not None:
            copies.append((self._slot[parent], self._slot[child], self._slots.page_bytes))
        return copies

    def free(self, request: int) -> None:
        """Take back what a sequence holds."""
        self._pages.release(self._tables.pop(request))
        del self._tokens[request]
        if self._slots is not None:
            self._slots.release([self._slot.pop(request)])

    def table(self, request: int) -> list[int]:
        """Return the byte offset of each page, in the order of the tokens."""
        return self._tables[request]

    def slot(self, request: int) -> int | None:
        """Return the byte offset of the recurrent state."""
        return self._slot.get(request)
