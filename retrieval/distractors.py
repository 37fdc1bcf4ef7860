"""Made-up entries that look real, to measure a search among many: the same ones for the same number, on any machine.

Their vocabulary is ``distractors.toml``: operators, models and troubles that no entry of the starter is about, put into
words that real entries and queries use as well. Standard library only.
"""

import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

SEED = 20_261_202

_FILE = Path(__file__).parent / "distractors.toml"
_KINDS: tuple[tuple[str, float], ...] = (
    ("kernel", 0.56), ("technique", 0.13), ("negative", 0.07), ("config", 0.08), ("combination", 0.04), ("comm", 0.04),
    ("allocation", 0.03), ("campaign", 0.03), ("target", 0.02),
)  # fmt: skip
"""Share of each; a negative result is a technique."""
_LONGEST_TITLE = 80
_LONGEST_SUMMARY = 160
_NOT_SLUG = re.compile(r"[^a-z0-9]+")

One = TypeVar("One")


@dataclass(frozen=True)
class Distractor:
    """A made-up entry."""

    id: str
    facts: Mapping[str, Any]
    """The plain form of a valid ``entry.toml``."""
    readme: str


@cache
def _vocabulary() -> Mapping[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def generate(count: int) -> Iterator[Distractor]:
    """Yield made-up entries; the first ones of a larger number are those of a smaller one.

    Args:
        count: How many.
    """
    draw = _Draw(random.Random(SEED))  # noqa: S311 - the point is that everybody gets the same
    used: set[str] = set()
    for _ in range(count):
        found = _one(draw)
        number = 2
        name = found.id
        while name in used:
            name = f"{found.id}-{number}"
            number += 1
        used.add(name)
        yield Distractor(name, found.facts, found.readme)


class _Draw:
    """Draws from the vocabulary, by ``random()`` alone: its values are the same in every version of Python."""

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def pick(self, things: Sequence[One]) -> One:
        return things[int(self._source.random() * len(things))]

    def some(self, things: Sequence[One], count: int) -> list[One]:
        rest = list(things)
        return [rest.pop(int(self._source.random() * len(rest))) for _ in range(min(count, len(rest)))]

    def kind(self) -> str:
        place = self._source.random()
        for kind, share in _KINDS:
            place -= share
            if place < 0:
                return kind
        return "kernel"

    def chance(self, share: float) -> bool:
        return self._source.random() < share

    def integer(self, low: int, high: int) -> int:
        return low + int(self._source.random() * (high - low + 1))


def _one(draw: _Draw) -> Distractor:
    words = _vocabulary()
    shown = draw.kind()
    kind = "technique" if shown == "negative" else shown
    topic, label, label2, things, family = _subject(draw, kind)
    device = draw.pick(list(words["devices"]))
    arch, short = words["devices"][device]
    dtype = draw.pick(list(words["dtypes"]))
    approach, approach2 = draw.some(words["approaches"]["kernel"], 2)
    fields = {
        "label": label,
        "label2": label2,
        "things": things,
        "approach": approach,
        "approach2": approach2,
        "trouble": draw.pick(words["approaches"]["technique"]),
        "dtype": draw.pick(words["dtypes"][dtype]),
        "short": short,
        "short2": draw.pick(list(words["devices"].values()))[1],
        "model": draw.pick(_models(family)),
        "baseline": draw.pick(words["models"]["baselines"]),
    }
    if kind in ("campaign", "target"):
        topic = _slug(fields["model"])
    patterns = words["titles"]["scheme" if kind in ("comm", "allocation") else shown]
    title = _fitting(draw, patterns, fields, _LONGEST_TITLE)
    summary = _fitting(draw, words["summaries"]["lines"], fields, _LONGEST_SUMMARY)
    facts: dict[str, Any] = {
        "schema": 1,
        "version": draw.integer(1, 3),
        "title": title,
        "summary": summary,
        "outcome": "works" if shown != "negative" else draw.pick(("regression", "no_effect", "incorrect")),
        "tags": [_slug(one) for one in (topic, approach, things, short, fields["dtype"], fields["model"])],
        "license": draw.pick(("Apache-2.0", "MIT", "BSD-3-Clause")),
        "source": {"origin": "made up"},
        **_code(draw, kind, topic, dtype, arch),
        **_extra(draw, shown, fields, device),
    }
    # Another source of chance than the rest, so that the rest stays as it was before entries had questions.
    asking = _Draw(random.Random(f"{SEED} {title} {summary}"))  # noqa: S311 - as above
    patterns = asking.some(words["questions"]["lines"], asking.integer(3, 7))
    facts["questions"] = [_filled(pattern, fields) for pattern in patterns]
    slug = "-".join(_slug(f"{approach} {short} {fields['dtype']}").split("-")[:8])
    return Distractor(f"{kind}/{topic}/{slug}", facts, _readme(draw, title, fields))


def _subject(draw: _Draw, kind: str) -> tuple[str, str, str, str, str]:
    """Return a topic, what it is called, what is like it, what it works on, and its family."""
    words = _vocabulary()
    if kind in ("comm", "allocation"):
        table: Mapping[str, Sequence[str]] = words["collectives" if kind == "comm" else "allocations"]
        rows = {name: ("training", *row) for name, row in table.items()}
    else:
        rows = {name: tuple(row) for name, row in words["operators"].items()}
    topic = draw.pick(list(rows))
    family, label, another, things = rows[topic]
    near = [row for name, row in rows.items() if row[0] == family and name != topic]
    label2 = draw.pick(near)[1]
    return topic, label if draw.chance(0.7) else another, label2, things, family


@cache
def _models(family: str) -> Sequence[str]:
    by_family = {name: names for name, names in _vocabulary()["models"].items() if name != "baselines"}
    every = sorted({model for names in by_family.values() for model in names})
    return list(by_family.get(family, every))


def _code(draw: _Draw, kind: str, topic: str, dtype: str, arch: str) -> dict[str, Any]:
    if kind not in ("kernel", "comm", "allocation"):
        return {"applies_to": [topic]} if kind in ("technique", "combination", "config") else {}
    language = draw.pick(("triton", "triton", "cuda", "torch", "cute_dsl"))
    archs = {arch, *draw.some(("sm_80", "sm_89", "sm_90", "sm_100", "sm_120"), draw.integer(1, 3))}
    found: dict[str, Any] = {
        "operator": topic,
        "language": language,
        "entry_point": "kernel.py:run",
        "dtypes": list(dict.fromkeys((dtype, draw.pick(("float32", "bfloat16", "float16"))))),
        "requires": {"arch": sorted(archs)},
        "bottleneck": draw.pick(("dram", "compute", "latency", "launch", "sync")),
    }
    if draw.chance(0.5):
        found["phase"] = [draw.pick(("decode", "prefill", "vision", "training"))]
    return found


def _extra(draw: _Draw, shown: str, fields: Mapping[str, str], device: str) -> dict[str, Any]:
    if shown == "negative":
        effect = f"{draw.integer(3, 40)} % slower than {fields['baseline']} on {fields['short']}"
        return {
            "negative": {
                "hypothesis": _filled("{approach_upper} would help {label_lower}.", fields),
                "condition": _filled("Ragged {things} in {dtype}.", fields),
                "effect": effect,
            }
        }
    if shown == "config":
        return {"tuned": {"kernel": _slug(fields["label"]), "device": device, "axes": {"n": 64 * draw.integer(1, 128)}}}
    if shown == "campaign" or (shown == "kernel" and draw.chance(0.25)):
        base = draw.integer(100, 9_000)
        claim = {
            "metric": draw.pick(("latency_us", "throughput", "tokens_per_s")),
            "value": base + draw.integer(1, base),
            "unit": "1/s",
            "better": "higher",
            "device": device,
            "workload": _filled("{model}, {dtype}", fields),
            "baseline": fields["baseline"],
            "baseline_value": base,
            "source": "made up",
        }
        return {"claims": [claim]}
    return {}


def _readme(draw: _Draw, title: str, fields: Mapping[str, str]) -> str:
    prose = _vocabulary()["prose"]
    parts = [f"# {title}"]
    for heading, bank, count in (
        ("What it does", "what", 2),
        ("Why it is fast", "why", 2),
        ("When not to use it", "when_not", 1),
        ("Pitfalls", "pitfalls", 2),
    ):
        lines = [_filled(line, fields) for line in draw.some(prose[bank], count)]
        parts.append(f"**{heading}.** " + " ".join(lines))
    return "\n\n".join(parts) + "\n"


def _fitting(draw: _Draw, patterns: Sequence[str], fields: Mapping[str, str], longest: int) -> str:
    """Fill patterns in a drawn order until one is short enough."""
    texts = [_filled(pattern, fields) for pattern in draw.some(patterns, len(patterns))]
    return next((text for text in texts if len(text) <= longest), texts[0][:longest].rstrip(" ,:;"))


def _filled(pattern: str, fields: Mapping[str, str]) -> str:
    made: dict[str, str] = {}
    for name, value in fields.items():
        made[name] = value
        made[f"{name}_upper"] = value[:1].upper() + value[1:]
        # An acronym stays as it is: "GPTQ INT4 GEMM", but "histogram".
        made[f"{name}_lower"] = (
            value if value[:2].isupper() or not value[1:2].islower() else value[0].lower() + value[1:]
        )
    return pattern.format_map(made)


def _slug(text: str) -> str:
    return _NOT_SLUG.sub("-", text.lower()).strip("-")
