"""Rules that say which operator a kernel is: data, read once, the first match decides."""

import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Literal

from kb.errors import SourceUnavailableError
from kb.importers.traces.profile import Key
from kb.models.vocabulary import UNJUDGED_OPERATORS

FILE = "kernel_names.toml"
_MOST_BYTES = 1 << 20
_INDUCTOR = re.compile(r"(?:graph_\d+_)?((?:triton_\w+?|cpp)_fused_\w+)")


@dataclass(frozen=True)
class Rule:
    """One rule."""

    id: str
    on: Literal["kernel", "operation"]
    pattern: re.Pattern[str]
    operator: str
    weak: bool = False
    """The name says little: what launched the kernel is asked first."""


@dataclass(frozen=True)
class Named:
    """What a kernel was reconciled with."""

    operator: str
    rule: str


class Rules:
    """All rules, in order."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self._kernels = tuple(one for one in rules if one.on == "kernel")
        self._operations = tuple(one for one in rules if one.on == "operation")
        self._kernel = lru_cache(maxsize=1 << 16)(self._first_of_kernels)
        self._operation = lru_cache(maxsize=1 << 16)(self._first_of_operations)

    def _first_of_kernels(self, name: str) -> Rule | None:
        return next((one for one in self._kernels if one.pattern.search(name)), None)

    def _first_of_operations(self, name: str) -> Rule | None:
        # A compiler's kernels on a CPU are operations to the profiler.
        fused = _INDUCTOR.search(name)
        if fused is not None:
            return self._kernel(fused.group(1))
        return next((one for one in self._operations if one.pattern.search(name)), None)

    def name(self, key: Key) -> Named | None:
        """Return the operator of a kernel, or None if no rule knows it.

        Args:
            key: Name and what launched it; an empty name for time that an operation itself took.
        """
        kernel = self._kernel(key.kernel) if key.kernel else None
        operation = None if key.operation is None else self._operation(key.operation.name)
        if operation is not None and operation.operator == "host" and key.kernel:
            operation = None
        chosen = operation if kernel is None or (kernel.weak and operation is not None) else kernel
        return None if chosen is None else Named(chosen.operator, chosen.id)


def load(extra: Path | None = None) -> Rules:
    """Read the rules.

    Args:
        extra: A file of the same form whose rules come first; None for none.

    Raises:
        SourceUnavailableError: A file cannot be read, or a rule is broken.
    """
    own = (resources.files("kb.importers") / "rules" / FILE).read_text(encoding="utf-8")
    return Rules((*_extra(extra), *_parsed(own, FILE)))


def _extra(path: Path | None) -> tuple[Rule, ...]:
    if path is None:
        return ()
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            raise SourceUnavailableError(f"{path}: expected a file of rules of at most {_MOST_BYTES} bytes")
        return _parsed(path.read_text(encoding="utf-8"), path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise SourceUnavailableError(f"{path}: {error}") from error


def _parsed(text: str, name: str) -> tuple[Rule, ...]:
    try:
        listed = tomllib.loads(text).get("rule", [])
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SourceUnavailableError(f"{name}: {error}") from error
    if not isinstance(listed, list):
        raise SourceUnavailableError(f"{name}: expected [[rule]] tables")
    return tuple(_rule(one, f"{name}: rule {number}") for number, one in enumerate(listed))


def _rule(raw: object, place: str) -> Rule:
    if not isinstance(raw, dict) or not {"id", "on", "match", "operator"} <= raw.keys() <= {
        "id", "on", "match", "operator", "weak",
    }:  # fmt: skip
        raise SourceUnavailableError(f"{place}: expected id, on, match, operator and perhaps weak")
    if raw["on"] not in ("kernel", "operation") or not all(
        isinstance(raw[each], str) for each in raw if each != "weak"
    ):
        raise SourceUnavailableError(f"{place}: expected texts, and kernel or operation for on")
    try:
        pattern = re.compile(raw["match"], re.IGNORECASE)
    except re.error as error:
        raise SourceUnavailableError(f"{place}: match: {error}") from error
    return Rule(raw["id"], raw["on"], pattern, raw["operator"], raw.get("weak") is True)


def known_operators(specs: tuple[str, ...]) -> frozenset[str]:
    """Return what a rule may name: operators with a spec, and those without."""
    return frozenset(specs) | UNJUDGED_OPERATORS.keys()
