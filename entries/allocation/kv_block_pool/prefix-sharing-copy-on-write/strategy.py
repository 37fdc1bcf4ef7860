"""Pages kept under the key of their prefix after their last reader, and copied only when a shared one is written.

Protocol of ``kv_block_pool``. A page of 16 tokens has the key that stands for its tokens and all before them, so equal
keys mean equal contents. Pages without readers stay until memory is wanted, the least recently used first.
"""

PAGE_TOKENS = 16

LAWS = ("chat", "documents", "shared_prefix", "parallel_samples")
"""Not for models with recurrent state: a state cannot be cut off where a prefix ends."""

Copies = list[tuple[int, int, int]]


class Pool:
    """A free list, a table from keys to pages, and a queue of cached pages."""

    page_tokens = PAGE_TOKENS

    def __init__(self, capacity_bytes: int, token_bytes: int, slot_bytes: int, max_tokens: int) -> None:
        if slot_bytes:
            raise ValueError("a recurrent state cannot be shared by prefix")
        self._page_bytes = PAGE_TOKENS * token_bytes
        self._free = [number * self._page_bytes for number in reversed(range(capacity_bytes // self._page_bytes))]
        self._readers: dict[int, int] = {}
        self._page_of: dict[int, int] = {}  # key -> page
        self._key_of: dict[int, int] = {}  # page -> key
        self._cached: dict[int, None] = {}  # pages without readers, least recently used first
        self._tables: dict[int, list[int]] = {}
        self._tokens: dict[int, int] = {}

    def admit(self, request: int, tokens: int, keys: tuple[int, ...]) -> int:
        """Give pages for a prompt; those whose keys are known are shared, and their tokens need not be computed."""
        found: list[int] = []
        for key in keys:
            page = self._page_of.get(key)
            if page is None:
                break
            found.append(page)
        for page in found:  # first, so that making room cannot evict them
            self._read(page)
        try:
            own = self._take(-(-tokens // PAGE_TOKENS) - len(found))
        except MemoryError:
            self._let_go(found)
            raise
        for key, page in zip(keys[len(found) :], own, strict=False):
            if key not in self._page_of:  # two requests may compute the same prefix at once: one of them is kept
                self._page_of[key], self._key_of[page] = page, key
        self._tables[request], self._tokens[request] = found + own, tokens
        return len(found) * PAGE_TOKENS

    def _read(self, page: int) -> None:
        self._readers[page] = self._readers.get(page, 0) + 1
        self._cached.pop(page, None)

    def _take(self, count: int) -> list[int]:
        if count > len(self._free) + len(self._cached):
            raise MemoryError(f"{count} pages")
        while len(self._free) < count:
            page = next(iter(self._cached))
            del self._cached[page]
            del self._page_of[self._key_of.pop(page)]
            self._free.append(page)
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._readers[page] = 1
        return pages

    def append(self, request: int, tokens: int) -> Copies:
        """Make room for more tokens; a last page that others read as well is copied first."""
        table, before = self._tables[request], self._tokens[request]
        total = before + tokens
        last = before // PAGE_TOKENS
        shared = before % PAGE_TOKENS != 0 and self._readers[table[last]] > 1
        missing = max(0, -(-total // PAGE_TOKENS) - len(table))
        fresh = self._take(missing + shared)
        copies: Copies = []
        if shared:
            own = fresh.pop()
            copies.append((table[last], own, self._page_bytes))
            self._let_go([table[last]])
            table[last] = own
        table += fresh
        self._tokens[request] = total
        return copies

    def fork(self, parent: int, child: int) -> Copies:
        """Share everything, the unfilled page as well: who writes first pays for a copy."""
        self._tables[child], self._tokens[child] = list(self._tables[parent]), self._tokens[parent]
        for page in self._tables[child]:
            self._read(page)
        return []

    def free(self, request: int) -> None:
        """Let go of a sequence's pages; those with a key stay to be found again."""
        # Last page first, so that the beginning of a prefix, which more requests share, is evicted last.
        self._let_go(reversed(self._tables.pop(request)))
        del self._tokens[request]

    def _let_go(self, pages) -> None:  # type: ignore[no-untyped-def]
        for page in pages:
            self._readers[page] -= 1
            if self._readers[page]:
                continue
            del self._readers[page]
            if page in self._key_of:
                self._cached[page] = None
            else:
                self._free.append(page)

    def table(self, request: int) -> list[int]:
        """Return the byte offset of each page, in the order of the tokens."""
        return self._tables[request]

    def slot(self, request: int) -> int | None:
        """Return None: there is no recurrent state."""
        return None
