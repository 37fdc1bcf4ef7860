"""Fork without a copy of the last page: both go on writing to it.

row: K5
operator: kv_block_pool
reason: lost_contents
"""

# mypy: ignore-errors

LAWS = ("parallel_samples",)


class Pool:
    page_tokens = 16

    def __init__(self, capacity_bytes: int, token_bytes: int, slot_bytes: int, max_tokens: int) -> None:
        self.page = 16 * token_bytes
        self.pages = [n * self.page for n in range(capacity_bytes // self.page)]
        self.tables, self.tokens, self.readers = {}, {}, {}

    def take(self, count: int):
        if count > len(self.pages):
            raise MemoryError
        taken = [self.pages.pop() for _ in range(count)]
        self.readers.update(dict.fromkeys(taken, 1))
        return taken

    def admit(self, request: int, tokens: int, keys) -> int:
        self.tables[request], self.tokens[request] = self.take(-(-tokens // 16)), tokens
        return 0

    def append(self, request: int, tokens: int):
        total = self.tokens[request] + tokens
        self.tables[request] += self.take(max(0, -(-total // 16) - len(self.tables[request])))
        self.tokens[request] = total
        return []

    def fork(self, parent: int, child: int):
        self.tables[child], self.tokens[child] = list(self.tables[parent]), self.tokens[parent]
        for page in self.tables[child]:
            self.readers[page] += 1
        return []

    def free(self, request: int) -> None:
        del self.tokens[request]
        for page in self.tables.pop(request):
            self.readers[page] -= 1
            if not self.readers[page]:
                self.pages.append(page)

    def table(self, request: int):
        return self.tables[request]

    def slot(self, request: int):
        return None
