"""Results that are kept for as long as the knowledge base does not change."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

T = TypeVar("T")

MOST = 64


class Remembered:
    """The last few results by name, each with the state that it was made of."""

    def __init__(self, most: int = MOST) -> None:
        """Start with nothing.

        Args:
            most: Results that are kept.
        """
        self._most = most
        self._kept: OrderedDict[Hashable, tuple[str, object]] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, name: Hashable, state: str, make: Callable[[], T]) -> T:
        """Return a result, made anew if the state is another one.

        Args:
            name: What it is; the same name always means the same type.
            state: Of what it is made.
            make: Makes it. Two threads may do so at once; the later one counts.
        """
        with self._guard:
            found = self._kept.get(name)
            if found is not None and found[0] == state:
                self._kept.move_to_end(name)
                return found[1]  # type: ignore[return-value]
        made = make()
        with self._guard:
            self._kept[name] = (state, made)
            self._kept.move_to_end(name)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return made
