"""One contiguous range for each sequence, as long as the longest there may be: no block table at all."""


class Pool:
    """Ranges of equal length, with the recurrent state beside each."""

    def __init__(self, capacity_bytes: int, token_bytes: int, slot_bytes: int, max_tokens: int) -> None:
        self.page_tokens = max_tokens
        self._page, self._slot = max_tokens * token_bytes, slot_bytes
        each = self._page + slot_bytes
        self._free = [number * each for number in reversed(range(capacity_bytes // each))]
        self._held: dict[int, int] = {}

    def admit(self, request: int, tokens: int, keys: tuple[int, ...]) -> int:
        """Give a range."""
        if not self._free:
            raise MemoryError("no range is free")
        self._held[request] = self._free.pop()
        return 0

    def append(self, request: int, tokens: int) -> list[tuple[int, int, int]]:
        """Do nothing: there is room already."""
        return []

    def fork(self, parent: int, child: int) -> list[tuple[int, int, int]]:
        """Give a range and have the whole of the parent's copied."""
        self.admit(child, 0, ())
        source, target = self._held[parent], self._held[child]
        return [(source, target, self._page + self._slot)]

    def free(self, request: int) -> None:
        """Take the range back."""
        self._free.append(self._held.pop(request))

    def table(self, request: int) -> list[int]:
        """Return the one page."""
        return [self._held[request]]

    def slot(self, request: int) -> int | None:
        """Return where the state lies, behind the page."""
        return self._held[request] + self._page if self._slot else None
