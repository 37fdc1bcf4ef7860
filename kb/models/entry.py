"""The format of ``entry.toml``: the facts of one entry, strict."""

import re
from datetime import date
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from kb.models import vocabulary
from kb.models.claims import Claim, Strict
from kb.models.documents import Campaign, Target

ARCH = re.compile(r"^(sm_\d{2,3}[af]?|gfx[0-9a-f]{3,4}|cpu)$")
TOKEN = re.compile(r"^[a-z0-9_]+:[a-z0-9_.\-x]+$")
SPDX = re.compile(r"^[A-Za-z0-9.+\-]+( (AND|OR|WITH) [A-Za-z0-9.+\-]+)*$")
ENTRY_ID = vocabulary.ENTRY_ID


def _one_of(words: tuple[str, ...]) -> AfterValidator:
    def check(word: str) -> str:
        if word not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return word

    return AfterValidator(check)


def _matches(pattern: re.Pattern[str], what: str) -> AfterValidator:
    def check(text: str) -> str:
        if not pattern.fullmatch(text):  # "$" alone would let a final newline pass
            raise ValueError(f"expected {what}")
        return text

    return AfterValidator(check)


Dtype = Annotated[str, _one_of(vocabulary.DTYPES)]
Arch = Annotated[str, _matches(ARCH, "an architecture such as sm_90, sm_90a, gfx942 or cpu")]
Token = Annotated[str, _matches(TOKEN, "a token such as layout:sf_128x4")]
EntryId = Annotated[str, _matches(ENTRY_ID, "an entry id such as kernel/rmsnorm/row-per-cta")]
Tag = Annotated[str, _matches(re.compile(r"^[a-z0-9][a-z0-9.\-]*$"), "a lower-case word such as split-k")]

Question = Annotated[str, Field(min_length=3, max_length=120)]


class Withdrawal(Strict):
    """Why an entry is no longer served; its evidence stays."""

    date: date
    reason: str = Field(min_length=1)


class Requires(Strict):
    """What a device and a toolchain must have for the entry's code to run."""

    arch: list[Arch] = Field(default_factory=list)
    """Architectures it was written for; a suffix (``sm_90a``) means that architecture alone."""
    features: list[Annotated[str, _one_of(vocabulary.FEATURES)]] = Field(default_factory=list)
    smem_bytes: int | None = Field(default=None, ge=0)
    """Shared memory a CTA needs, in bytes."""
    hbm_bytes: int | None = Field(default=None, ge=0)
    devices: int | None = Field(default=None, ge=1)
    """How many devices work together; None for one."""
    packages: dict[str, str] = Field(default_factory=dict)
    """Package name to version specifier."""


class Limit(Strict):
    """An executable predicate on one axis."""

    min: int | None = None
    max: int | None = None
    multiple_of: int | None = Field(default=None, ge=1)
    in_: list[int] | None = Field(default=None, alias="in", min_length=1)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.min is None and self.max is None and self.multiple_of is None and self.in_ is None:
            raise ValueError("expected at least one of min, max, multiple_of, in")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min is above max")
        return self


class Contracts(Strict):
    """Tokens that decide which entries work together."""

    requires: list[Token] = Field(default_factory=list)
    provides: list[Token] = Field(default_factory=list)
    conflicts: list[Token] = Field(default_factory=list)


class Ancestor(Strict):
    """Where an entry came from."""

    parent: EntryId
    relation: Annotated[str, _one_of(vocabulary.RELATIONS)]


class Cost(Strict):
    """What finding the entry took; None means not recorded."""

    tokens: int | None = Field(default=None, ge=0)
    gpu_seconds: float | None = Field(default=None, ge=0)
    wall_seconds: float | None = Field(default=None, ge=0)
    usd: float | None = Field(default=None, ge=0)
    attempts: int | None = Field(default=None, ge=0)
    failed_attempts: int | None = Field(default=None, ge=0)


class Source(Strict):
    """Where the content comes from."""

    origin: str | None = None
    """``written here``, or the name of the project or publication."""
    url: str | None = None
    commit: str | None = None
    path: str | None = None
    sha256: Annotated[str, _matches(re.compile(r"^[0-9a-f]{64}$"), "64 hexadecimal digits")] | None = None
    """Digest of the original bytes."""
    note: str | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.origin is None and self.url is None:
            raise ValueError("expected origin or url")
        return self


class Symbols(Strict):
    """Other names of the same thing, for finding it from a profile or a stack trace."""

    api: list[str] = Field(default_factory=list)
    profiler_names: list[str] = Field(default_factory=list)
    model_layers: list[str] = Field(default_factory=list)


class Negative(Strict):
    """What was expected and what came out."""

    hypothesis: str = Field(min_length=1)
    condition: str = Field(min_length=1)
    """When it holds."""
    effect: str = Field(min_length=1)
    """What happened, with the figures of a record or a cited source."""
    min_detectable_effect: float | None = Field(default=None, gt=0)
    """Smallest relative effect that the measurement could have seen; None if the source does not say."""


class Tuned(Strict):
    """Whom tuned parameters are for."""

    entry: EntryId | None = None
    kernel: str | None = None
    """The kernel's name where it is not an entry."""
    device: str
    toolchain: dict[str, str] = Field(default_factory=dict)
    axes: dict[str, int] = Field(default_factory=dict)


class EntryFile(Strict):
    """All of ``entry.toml``."""

    schema_: Literal[1] = Field(alias="schema")
    version: int = Field(ge=1, le=1_000_000)
    title: str = Field(min_length=3, max_length=80)
    summary: str = Field(min_length=10, max_length=160)
    outcome: Annotated[str, _one_of(vocabulary.OUTCOMES)]
    operator: Annotated[str, _matches(re.compile(r"^[a-z0-9]+(_[a-z0-9]+)*$"), "an operator name")] | None = None
    applies_to: list[str] = Field(default_factory=list)
    """Further operators that the entry helps with."""
    language: Annotated[str, _one_of(vocabulary.LANGUAGES)] = "none"
    entry_point: Annotated[str, _matches(re.compile(r"^[\w.\-]+\.\w+:\w+$"), "FILE:FUNCTION")] | None = None
    dtypes: list[Dtype] = Field(default_factory=list)
    tags: list[Tag] = Field(default_factory=list)
    questions: list[Question] = Field(default_factory=list, max_length=16)
    """What people ask or see when this is the answer, in their words: questions, symptoms, lines of a log."""
    license: Annotated[str, _matches(SPDX, "an SPDX identifier")]
    restrictions: list[str] = Field(default_factory=list)
    bottleneck: Annotated[str, _one_of(vocabulary.BOTTLENECKS)] | None = None
    phase: list[Annotated[str, _one_of(vocabulary.PHASES)]] = Field(default_factory=list)
    withdrawn: Withdrawal | None = None
    requires: Requires = Field(default_factory=Requires)
    limits: dict[str, Limit] = Field(default_factory=dict)
    contracts: Contracts = Field(default_factory=Contracts)
    lineage: list[Ancestor] = Field(default_factory=list)
    cost: Cost | None = None
    source: Source
    symbols: Symbols = Field(default_factory=Symbols)
    cannot_run_on: dict[str, str] = Field(default_factory=dict)
    """Device to reason, for devices on which a judge cannot run the code (``cpu``: no interpreter support)."""
    negative: Negative | None = None
    tuned: Tuned | None = None
    claims: list[Claim] = Field(default_factory=list)
    uses: list[EntryId] = Field(default_factory=list)
    """For a combination: the entries that work together."""
    target: Target | None = None
    campaign: Campaign | None = None

    @field_validator("claims")
    @classmethod
    def _claims_are_distinct(cls, claims: list[Claim]) -> list[Claim]:
        keys = [(c.metric, c.device, c.workload, c.backend, c.source) for c in claims]
        if len(set(keys)) != len(keys):
            raise ValueError("two claims state the same metric, device, workload, backend and source")
        return claims

    def missing_for(self, kind: str) -> list[str]:
        """Name the fields that an entry of this kind must have and this one lacks.

        Args:
            kind: One of ``vocabulary.KINDS``.

        Returns:
            Field names, empty if nothing is missing.
        """
        needs: dict[str, dict[str, Any]] = {
            "kernel": {"operator": self.operator, "entry_point": self.entry_point, "dtypes": self.dtypes},
            "allocation": {"operator": self.operator, "entry_point": self.entry_point},
            "comm": {"operator": self.operator, "entry_point": self.entry_point},
            "config": {"tuned": self.tuned},
            "combination": {"uses": self.uses},
            "target": {"target": self.target},
            "campaign": {"campaign": self.campaign},
        }
        missing = [name for name, value in needs.get(kind, {}).items() if not value]
        if kind == "kernel" and not self.requires.arch:
            missing.append("requires.arch")
        if self.outcome != "works" and self.negative is None:
            missing.append("negative")
        return missing
