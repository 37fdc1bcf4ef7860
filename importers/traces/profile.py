"""What is kept of a trace: times and calls by kernel, launching operation and shapes."""

import math
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kb.errors import SourceUnavailableError

LONGEST_NAME = 4_096
"""Characters of a kernel's name that are kept; templates of CUTLASS have some thousands."""
MOST_NAMES = 200_000
"""Different kernels and operations of one trace."""
_LONGEST_US = 1e13
_LONGEST_DEVICE = 100


NAMELESS = "(a name that cannot be printed)"
"""Where nothing of a name is left."""
_SEPARATORS = ("Cc", "Zl", "Zp", "Zs")


class Operation(NamedTuple):
    """What a framework called."""

    name: str
    dims: tuple[tuple[int, ...], ...] = ()
    """Sizes of its tensor arguments; an empty one for everything else."""
    dtypes: tuple[str, ...] = ()
    """As the framework calls them; empty for what is no tensor."""


class Key(NamedTuple):
    """Calls that count together."""

    kernel: str
    """Name that ran; empty for time that an operation itself took."""
    operation: Operation | None
    """What launched it, where the trace says so."""


@dataclass
class Spent:
    """Time of one key."""

    time_us: float = 0.0
    calls: int = 0


@dataclass
class Profile:
    """The content of a trace, in short."""

    source: str
    """``torch profiler``, ``Nsight Systems``, with the form."""
    device: str | None = None
    """As the trace names it; ``cpu`` where nothing ran on an accelerator; None if it does not say."""
    steps: int | None = None
    """Steps that the trace marks."""
    spent: dict[Key, Spent] = field(default_factory=dict)
    cleaned: set[str] = field(default_factory=set)
    """Names as they count, of which the trace's own spelling had characters that cannot be printed."""
    held: dict[tuple[Key, frozenset[str]], int] = field(default_factory=dict)
    """Operations with the names of all that one call of them called itself, and how many calls were so: where the same
    operator is among those (``aten::linear``, ``aten::matmul``, ``aten::mm``), the outer one is no call of its own.
    Names, not the longest one: which of them is the longest, a machine under load decides."""

    @property
    def total_us(self) -> float:
        """Time of everything."""
        return math.fsum(one.time_us for one in self.spent.values())

    def named(self, name: object) -> str:
        """Return the name of a kernel or an operation as it counts: printable, and cut where it is overlong.

        One name with control or invisible characters is no reason to refuse all times of a trace: blanks stand for
        what separates, the rest is taken out, and the name goes into :attr:`cleaned`.

        Args:
            name: As the trace has it.

        Raises:
            SourceUnavailableError: It is no text, or empty.
        """
        if not isinstance(name, str) or not name:
            raise malformed(f"expected the name of a kernel, found {str(name)[:60]!r}")
        short = name[:LONGEST_NAME]
        if short.isprintable():
            return short
        made = " ".join("".join(map(_visible, short)).split()) or NAMELESS
        if len(self.cleaned) < MOST_NAMES:
            self.cleaned.add(made)
        return made

    def add(self, key: Key, time_us: float, calls: int = 1) -> None:
        """Add calls.

        Raises:
            SourceUnavailableError: There are too many different names.
        """
        found = self.spent.get(key)
        if found is None:
            if len(self.spent) >= MOST_NAMES:
                raise malformed(f"more than {MOST_NAMES:,} different kernels")
            found = self.spent[key] = Spent()
        found.time_us += time_us
        found.calls += calls

    def hold(self, outer: Key, inside: frozenset[str], calls: int = 1) -> None:
        """Note calls of an operation, and the names of those that each such call called itself."""
        self.held[outer, inside] = self.held.get((outer, inside), 0) + calls


def malformed(what: str) -> SourceUnavailableError:
    """Return the error for a trace that cannot be used."""
    return SourceUnavailableError(f"the trace cannot be read: {what}", hint="docs/targets.md says which forms are read")


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    return " " if unicodedata.category(character) in _SEPARATORS else ""


def checked_time(value: object, what: str) -> float:
    """Return a time in microseconds.

    Raises:
        SourceUnavailableError: It is no number, not finite, negative, or above 100 days.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise malformed(f"{what}: expected a time, found {str(value)[:40]!r}")
    if not 0 <= value <= _LONGEST_US:
        raise malformed(f"{what}: expected 0 to {_LONGEST_US:g} microseconds, found {value:g}")
    return float(value)


def device_of(names: Iterable[object]) -> str | None:
    """Return the device that a trace was taken on; None if it names none, several, or what cannot be a name."""
    found = {one for one in names if isinstance(one, str) and one.isprintable() and len(one) <= _LONGEST_DEVICE} - {""}
    return found.pop() if len(found) == 1 else None
