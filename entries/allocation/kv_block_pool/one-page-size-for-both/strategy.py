"""KV pages padded to the size of a recurrent-state slot, so that one list of pages serves both.

Protocol of ``kv_block_pool``, for models with recurrent state.
"""

LAWS = ("hybrid",)

Copies = list[tuple[int, int, int]]


class Pool:
    """One list of pages of one slot's size; a page is a state, or as many tokens as fit."""

    def __init__(self, capacity_bytes: int, token_bytes: int, slot_bytes: int, max_tokens: int) -> None:
        self._page = slot_bytes or 16 * token_bytes
        self._has_state = slot_bytes > 0
        self.page_tokens = self._page // token_bytes
        # A page begins where its last one ends in whole tokens, so that tokens stay aligned.
        self._free = [number * self._page for number in reversed(range(capacity_bytes // self._page))]
        self._tables: dict[int, list[int]] = {}
        self._tokens: dict[int, int] = {}
        self._slot: dict[int, int] = {}

    def admit(self, request: int, tokens: int, keys: tuple[int, ...]) -> int:
        """Give a page for the state and pages for the prompt, or raise MemoryError."""
        pages = self._take(-(-tokens // self.page_tokens) + self._has_state)
        if self._has_state:
            self._slot[request] = pages.pop()
        self._tables[request], self._tokens[request] = pages, tokens
        return 0

    def _take(self, count: int) -> list[int]:
        if count > len(self._free):
            raise MemoryError(f"{count} pages")
        return [self._free.pop() for _ in range(count)]

    def append(self, request: int, tokens: int) -> Copies:
        """Make room for more tokens."""
        total = self._tokens[request] + tokens
        self._tables[request] += self._take(max(0, -(-total // self.page_tokens) - len(self._tables[request])))
        self._tokens[request] = total
        return []

    def fork(self, parent: int, child: int) -> Copies:
        """Copy everything: the pages are too long for a prefix to end at their border."""
        self.admit(child, self._tokens[parent], ())
        pairs = zip(self._tables[parent], self._tables[child], strict=True)
        copies = [(source, target, self._page) for source, target in pairs]
        return copies + ([(self._slot[parent], self._slot[child], self._page)] if self._has_state else [])

    def free(self, request: int) -> None:
        """Take back what a sequence holds."""
        self._free += self._tables.pop(request)
        del self._tokens[request]
        if self._has_state:
            self._free.append(self._slot.pop(request))

    def table(self, request: int) -> list[int]:
        """Return the byte offset of each page, in the order of the tokens."""
        return self._tables[request]

    def slot(self, request: int) -> int | None:
        """Return the byte offset of the recurrent state."""
        return self._slot.get(request)
