"""Maps a kernel to an operator where its signature and its body both allow, by rules that are data."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from kb.importers.code.parts import Kernel

RULES = "kernel_operators.toml"
SURE = 0.8
"""Least confidence that maps a kernel."""
APART = 0.1
"""By how much the best operator must lead the next one."""
_MOST_NEAR = 0.7
"""Highest confidence of what is only the nearest."""
_BACKWARD = re.compile(r"(?i)(^|_)(bwd|backward|grad|grads|dgrad|wgrad|jvp)(_|\d|$)")
_GRADIENT = re.compile(
    r"(?i)^(p_|b_|i_)?(grad(_.*)?|.*_grads?(_ptr)?|d(o|q|k|v|x|y|w|b|g|h|a|s|st|lse|out|hidden|residual|weight|bias|gamma|beta))(_?ptr)?$"
)
_MUST_NOT_NAME = re.compile(r"(?i)(^|_)(test|debug|dummy|ref|naive_check)(_|$)")


@dataclass(frozen=True)
class Rule:
    """When a kernel computes an operator."""

    operator: str
    on: str | None
    """``triton`` or ``cuda``; None for both."""
    name: re.Pattern[str]
    """In the names of the kernel, its launchers and its file."""
    never: re.Pattern[str] | None
    """In the kernel's name or its whole path: then it is something else."""
    body: tuple[frozenset[str], ...]
    """One word of each group must be among the features."""
    without: frozenset[str]
    """None of these may be."""
    takes: tuple[re.Pattern[str], ...]
    """Each must match a parameter's name."""
    lacks: re.Pattern[str] | None
    """May match none."""
    pointers: tuple[int, int]
    alone: float
    """Confidence where body and signature fit and no name says so, 0 to 1."""
    part: bool
    """True where such a kernel is one of several that compute the operator together."""


@dataclass(frozen=True)
class Meaning:
    """What a kernel computes, as far as it can be told."""

    operator: str | None
    part_of: str | None
    confidence: float
    """0 to 1; that of the nearest where nothing is mapped."""
    nearest: str | None
    reason: str
    """Why it is mapped, or why not."""


@cache
def rules() -> tuple[Rule, ...]:
    """Return the rules of ``rules/kernel_operators.toml``, in their order."""
    text = (files("kb.importers") / "rules" / RULES).read_text(encoding="utf-8")
    return tuple(_rule(each) for each in tomllib.loads(text)["rule"])


def _rule(row: dict[str, Any]) -> Rule:
    low, high = row.get("pointers", (1, 64))
    return Rule(
        operator=row["operator"],
        on=row.get("on"),
        name=re.compile(row["name"], re.IGNORECASE),
        never=re.compile(row["never"], re.IGNORECASE) if "never" in row else None,
        body=tuple(frozenset(group.split("|")) for group in row["body"]),
        without=frozenset(row.get("without", ())),
        takes=tuple(re.compile(each, re.IGNORECASE) for each in row.get("takes", ())),
        lacks=re.compile(row["lacks"], re.IGNORECASE) if "lacks" in row else None,
        pointers=(low, high),
        alone=row.get("alone", 0.5),
        part=row.get("part", False),
    )


def meaning_of(kernel: Kernel, path: str) -> Meaning:
    """Say which operator a kernel computes.

    Args:
        kernel: What was found.
        path: Of its file; names there count less than its own.

    Returns:
        An operator only where its signature and its body fit one rule, and no other rule nearly as well.
    """
    if _BACKWARD.search(_words(kernel.name)) or any(_GRADIENT.match(each.name) for each in kernel.parameters):
        best = _best(kernel, path)
        return Meaning(None, None, best[0], best[1].operator if best[1] else None, "a backward pass")
    if _MUST_NOT_NAME.search(_words(kernel.name)):
        return Meaning(None, None, 0.0, None, "its name says that it is no kernel to use")
    scored = sorted(((score(rule, kernel, path), rule) for rule in rules()), key=lambda pair: -pair[0])
    (sure, rule), *rest = scored
    if sure < SURE:
        sure, nearest = _best(kernel, path)
        reason = f"no rule is met by signature and body ({sure:.2f})" if nearest else "nothing like it is known"
        return Meaning(None, None, sure, nearest.operator if nearest else None, reason)
    other = next(((value, each) for value, each in rest if each.operator != rule.operator), (0.0, rule))
    if sure - other[0] < APART:
        reason = f"{rule.operator} and {other[1].operator} fit alike"
        return Meaning(None, None, sure, rule.operator, reason)
    reason = (
        f"name, signature and body fit ({sure:.2f})" if sure > rule.alone else f"signature and body fit ({sure:.2f})"
    )
    return Meaning(
        None if rule.part else rule.operator, rule.operator if rule.part else None, sure, rule.operator, reason
    )


def score(rule: Rule, kernel: Kernel, path: str) -> float:
    """Return the confidence that a kernel computes a rule's operator, 0 where signature or body do not allow it."""
    if rule.on not in (None, _family(kernel)) or not (_body_fits(rule, kernel) and _signature_fits(rule, kernel)):
        return 0.0
    if rule.never is not None and rule.never.search(f"{_words(path)}/{_words(kernel.name)}"):
        return 0.0
    own, around = _named(rule, kernel, path)
    return 0.95 if own else max(rule.alone, 0.85 if around else 0.0)


def _family(kernel: Kernel) -> str:
    return "cuda" if kernel.language in ("cuda", "hip") else "triton"


def _named(rule: Rule, kernel: Kernel, path: str) -> tuple[bool, bool]:
    own = rule.name.search(_words(kernel.name)) is not None
    stem = path.rsplit("/", 1)[-1].rpartition(".")[0]
    return own, any(rule.name.search(_words(each)) for each in (*kernel.launchers, stem))


def _body_fits(rule: Rule, kernel: Kernel) -> bool:
    return all(group & kernel.features for group in rule.body) and not rule.without & kernel.features


def _signature_fits(rule: Rule, kernel: Kernel) -> bool:
    names = [each.name for each in kernel.parameters]
    count = sum(each.kind == "pointer" for each in kernel.parameters)
    if rule.lacks is not None and any(rule.lacks.search(_words(name)) for name in names):
        return False
    return rule.pointers[0] <= count <= rule.pointers[1] and all(
        any(each.search(_words(name)) for name in names) for each in rule.takes
    )


def _best(kernel: Kernel, path: str) -> tuple[float, Rule | None]:
    """Return the nearest rule, of those whose name fits, to a kernel which meets none, with a low confidence."""
    found: list[tuple[float, int, Rule]] = []
    for number, rule in enumerate(rules()):
        own, around = _named(rule, kernel, path)
        share = sum(bool(group & kernel.features) for group in rule.body) / max(len(rule.body), 1)
        if rule.on not in (None, _family(kernel)) or share == 0 or not (own or around):
            continue
        part = 0.35 * share + 0.2 * _signature_fits(rule, kernel) + 0.2 * own + 0.1 * around
        found.append((part - 0.15 * bool(rule.without & kernel.features), -number, rule))
    if not found:
        return 0.0, None
    value, _, rule = max(found, key=lambda each: each[:2])
    return (round(min(value, _MOST_NEAR), 2), rule) if value >= 0.3 else (0.0, None)


def _words(name: str) -> str:
    """Write a name with underscores between its words: ``rmsNormKernel`` as ``rms_norm_kernel``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
