"""Say that a prefix was found whenever its key was ever seen, also when its pages serve others by now.

row: K5
operator: kv_block_pool
reason: lost_contents
"""

# mypy: ignore-errors

LAWS = ("shared_prefix",)


class Pool:
    page_tokens = 16

    def __init__(self, capacity_bytes: int, token_bytes: int, slot_bytes: int, max_tokens: int) -> None:
        self.page = 16 * token_bytes
        self.pages = [n * self.page for n in range(capacity_bytes // self.page)]
        self.tables, self.tokens, self.seen = {}, {}, set()

    def take(self, count: int):
        if count > len(self.pages):
            raise MemoryError
        return [self.pages.pop() for _ in range(count)]

    def admit(self, request: int, tokens: int, keys) -> int:
        self.tables[request], self.tokens[request] = self.take(-(-tokens // 16)), tokens
        found = 0
        for key in keys:
            if key not in self.seen:
                break
            found += 16
        self.seen.update(keys)
        return found

    def append(self, request: int, tokens: int):
        total = self.tokens[request] + tokens
        self.tables[request] += self.take(max(0, -(-total // 16) - len(self.tables[request])))
        self.tokens[request] = total
        return []

    def free(self, request: int) -> None:
        del self.tokens[request]
        self.pages += self.tables.pop(request)

    def table(self, request: int):
        return self.tables[request]

    def slot(self, request: int):
        return None
