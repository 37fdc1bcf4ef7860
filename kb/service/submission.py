"""What somebody submits, and the entry that it becomes."""

import ast
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kb.errors import EntryFormatError
from kb.models.vocabulary import ENTRY_ID, OUTCOMES
from kb.service.stated_license import license_of
from kb.store import files, layout, toml
from kb.store.content import MAX_FILE_BYTES, Content
from kb.store.files import StoredEntry
from kb.validators.operators.names import ALLOCATION, COMM

MOST_TEXT = 4_000
"""Longest prose field, in characters."""

MARK_DIGITS = 10
"""Hexadecimal digits of the content that end the slug of a submission."""

_README_LINES = 40
_SUMMARY = 160
_WIDTH = 118


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One time that the submitter measured; filed as a claim, evidence ``reported`` at most."""

    latency_us: float
    device: str
    """As the device reports its name: ``NVIDIA H100 80GB HBM3``."""
    workload: str
    baseline: str | None = None
    """What it was compared with, with its version."""
    baseline_us: float | None = None


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One candidate with what is claimed of it, or a negative result with its condition."""

    title: str
    """3 to 80 characters."""
    claim: str
    """What it does, why it helps and when not to use it, in plain words; becomes the readme."""
    operator: str | None = None
    """What the candidate computes; for an idea without code any topic word."""
    source: str | None = None
    """The candidate's Python; None for an idea or a negative result without code."""
    outcome: str = "works"
    """One of ``vocabulary.OUTCOMES``."""
    hypothesis: str | None = None
    """Of a negative result: what was expected."""
    condition: str | None = None
    """Of a negative result: when it holds (device, shapes, dtype, toolchain). Required there."""
    effect: str | None = None
    """Of a negative result: what happened, with figures. Required there."""
    dtypes: tuple[str, ...] = ()
    """Judge and file these; empty for all of the operator."""
    arch: tuple[str, ...] = ()
    """Architectures it was written for (``sm_90``); for code other than plain torch it must be said."""
    language: str | None = None
    """One of ``vocabulary.LANGUAGES``; read from the imports if None."""
    parents: tuple[str, ...] = ()
    """Ids of the entries that it was made from."""
    tags: tuple[str, ...] = ()
    license: str | None = None
    """SPDX id under which it may be passed on; None reads it from the source. One of the two has to say it."""
    device: str = "cpu"
    """Where it is judged: ``cpu`` or ``cuda:N``."""
    figure: Figure | None = None

    @property
    def kind(self) -> str:
        """Kind of the entry that it becomes."""
        if self.source is None:
            return "technique"
        return "allocation" if self.operator in ALLOCATION else "comm" if self.operator in COMM else "kernel"

    @property
    def content(self) -> str:
        """sha256 over what makes it the same submission: 64 hexadecimal digits."""
        parts: list[Any] = [self.kind, self.operator, self.source, self.outcome]
        if self.source is None or self.outcome != "works":
            parts += [self.hypothesis, self.condition, self.effect]
        if self.source is None:
            parts += [self.title, self.claim]
        encoded = json.dumps(parts, ensure_ascii=True).encode("ascii")
        return hashlib.sha256(b"kb-submission-1\0" + encoded).hexdigest()

    @property
    def topic(self) -> str:
        """Second part of the id: the operator, or ``general`` for an idea that names none."""
        word = re.sub(r"[^a-z0-9]+", "_", (self.operator or "general").lower()).strip("_")
        return word[:60].strip("_") or "general"

    @property
    def mark(self) -> str:
        """End of the slug, which stands for the content."""
        return self.content[:MARK_DIGITS]

    @property
    def id(self) -> str:
        """Id of the entry that it becomes; another title gives another one, the same content the same mark."""
        words = re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")[:48].strip("-")
        return f"{self.kind}/{self.topic}/{words or 'submission'}-{self.mark}"


def check(made: Submission) -> None:
    """Refuse what can never be filed.

    Args:
        made: The submission.

    Raises:
        EntryFormatError: A field is missing, too long, or not what is expected; the hint says what to send.
    """
    for name in ("title", "claim", "hypothesis", "condition", "effect"):
        value = getattr(made, name)
        if value is not None and len(value) > MOST_TEXT:
            raise EntryFormatError(f"{name}: expected at most {MOST_TEXT:,} characters, found {len(value):,}")
    if not 3 <= len(made.title.strip()) <= 80:
        raise EntryFormatError("title: expected 3 to 80 characters", hint="one line that says what it is")
    if len(made.claim.strip()) < 10:
        raise EntryFormatError("claim: expected at least 10 characters", hint="what it does, why it helps, when not")
    if made.outcome not in OUTCOMES:
        raise EntryFormatError(
            f"outcome: no outcome is called {made.outcome[:40]!r}", hint=f"one of {', '.join(OUTCOMES)}"
        )
    if made.outcome != "works" and not (made.condition and made.effect):
        hint = "condition: when it holds (device, shapes, dtype, versions); effect: what happened, in figures"
        raise EntryFormatError(f"outcome {made.outcome} needs condition and effect", hint=hint)
    if made.source is None and made.outcome == "works":
        raise EntryFormatError("source is missing: what works is code that the judge can run", hint="send source")
    if made.source is not None and not made.operator:
        raise EntryFormatError("operator is missing: it says what the source computes", hint="see the operators")
    bad = next((one for one in made.parents if not ENTRY_ID.fullmatch(one)), None)
    if bad is not None:
        raise EntryFormatError(f"parents: {bad[:80]!r} is no id", hint="KIND/TOPIC/SLUG, as search shows it")
    license_of(made.license, made.source)


def compose(made: Submission, *, dtypes: tuple[str, ...], said: Mapping[str, Any] | None, author: str) -> StoredEntry:
    """Return the entry that a submission becomes, checked against all rules.

    Args:
        made: The submission.
        dtypes: For which the judge passed it, or those that were asked for before it was judged.
        said: The judge's report; None before there is one, and where there is no code.
        author: Who submits.

    Raises:
        EntryFormatError: It breaks a rule of the format.
    """
    facts = _facts(made, dtypes, author)
    body: dict[str, bytes] = {
        layout.FACTS: _encoded(toml.dumps(facts)),
        layout.README: _encoded(_readme(made, said)),
    }
    if made.source is not None:
        body[_file(made)] = _encoded(made.source)
    faults = tuple(f"{name}: too large" for name, raw in body.items() if len(raw) > MAX_FILE_BYTES)
    stored, found = files.inspect(Content(body, (), faults), made.id)
    if stored is None:
        raise EntryFormatError(f"it makes no valid entry: {found[0]}", hint="mend that and submit again")
    return stored


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _facts(made: Submission, dtypes: tuple[str, ...], author: str) -> dict[str, Any]:
    code = made.source is not None
    language = made.language or _language(made.source)
    facts: dict[str, Any] = {
        "schema": 1,
        "version": 1,
        "title": _line(made.title),
        "summary": _summary(made.claim),
        "outcome": made.outcome,
        "operator": made.topic if code or made.operator else None,
        "language": language,
        "entry_point": f"{_file(made)}:{_function(made)}" if made.source is not None else None,
        "dtypes": list(dtypes),
        "tags": list(made.tags),
        "license": license_of(made.license, made.source),
        "requires": {"arch": _arch(made, language)},
        "source": {"origin": f"submitted by {_line(author)[:60]}", "sha256": made.content},
    }
    if made.outcome != "works":
        facts["negative"] = {
            "hypothesis": _line(made.hypothesis or made.claim)[:MOST_TEXT],
            "condition": _line(made.condition or ""),
            "effect": _line(made.effect or ""),
        }
    if made.parents:
        facts["lineage"] = [{"parent": one, "relation": "mutated"} for one in made.parents]
    if made.figure is not None:
        facts["claims"] = [_claim(made.figure, author)]
    return facts


def _claim(figure: Figure, author: str) -> dict[str, Any]:
    stated = {name: value for name, value in asdict(figure).items() if value is not None}
    made = {
        "metric": "latency_us",
        "value": float(figure.latency_us),
        "unit": "us",
        "better": "lower",
        "device": figure.device,
        "workload": figure.workload,
        "source": f"{_line(author)[:60]}, with the submission",
    }
    if "baseline" in stated:
        made["baseline"] = figure.baseline
    if figure.baseline_us is not None:
        made["baseline_value"] = float(figure.baseline_us)
    return made


def _line(text: str) -> str:
    return " ".join(text.split())


def _summary(claim: str) -> str:
    line = _line(claim)
    if len(line) <= _SUMMARY:
        return line
    first = re.split(r"(?<=[.;]) ", line, maxsplit=1)[0]
    return first if 10 <= len(first) <= _SUMMARY else line[: _SUMMARY - 1].rstrip() + "…"


def _language(source: str | None) -> str:
    if source is None:
        return "none"
    imported = set(re.findall(r"^\s*(?:import|from)\s+([A-Za-z_]\w*)", source, flags=re.MULTILINE))
    return next((word for word in ("triton", "torch") if word in imported), "python")


def _arch(made: Submission, language: str) -> list[str]:
    if made.arch or made.source is None:
        return list(made.arch)
    if language in ("torch", "python") and made.device == "cpu":
        return ["cpu"]
    hint = "arch: the architectures it was written for, such as sm_90"
    raise EntryFormatError(f"arch is missing: {language} code is for certain architectures", hint=hint)


def _file(made: Submission) -> str:
    return {"allocation": "strategy.py", "comm": "scheme.py"}.get(made.kind, "kernel.py")


def _function(made: Submission) -> str:
    """Return the name that the judge calls; an allocation strategy may be a class."""
    if made.kind != "allocation" or made.source is None:
        return "run"
    try:
        tree = ast.parse(made.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "run"
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return next((name for name in ("run", "Allocator", "DeviceAllocator") if name in names), "run")


def _readme(made: Submission, said: Mapping[str, Any] | None) -> str:
    lines = [f"# {_line(made.title)}", ""]
    lines += made.claim.strip().splitlines()[:_README_LINES]
    if said is not None:
        lines += ["", f"The judge said {said['verdict']} on {said.get('device', 'cpu')} when it was submitted."]
    return "\n".join(line.rstrip() for line in lines) + "\n"
