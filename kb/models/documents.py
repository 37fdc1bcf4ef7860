"""The two document kinds: what a target is, and what a campaign on it achieved."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from kb.models import vocabulary
from kb.models.claims import Strict

Phase = Literal["prefill", "decode", "vision", "training"]
ShareSource = Literal["measured", "estimated"]

PAGE_SIZE = 16
"""Slots of a page of a KV cache where a row does not fix it."""

SHARE_SLACK = 0.005
"""By how much shares, which are rounded when they are written, may miss what they should add up to."""


class Goal(Strict):
    """One metric that the target is judged by."""

    metric: str = Field(min_length=1)
    better: Literal["higher", "lower"]
    against: str | None = None
    """The baseline with its version."""
    gain_percent: float | None = Field(default=None, gt=0)
    """How much better than the baseline it has to be."""
    value: float | None = Field(default=None, gt=0)
    """The figure to reach, in the metric's unit; None where only a gain is asked for."""
    traffic: str | None = None
    """Name of the traffic under which it is measured; None for all of it."""


class Traffic(Strict):
    """One pattern of requests, in numbers. None: it does not matter here, or nobody said."""

    name: str = Field(min_length=1, max_length=60, pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    summary: str | None = Field(default=None, min_length=1)
    """The same in words."""
    phase: Phase | None = None
    batch_size: int = Field(default=1, ge=1, le=1_000_000)
    """Sequences, or images, that one step handles together."""
    input_tokens: int | None = Field(default=None, ge=1, le=100_000_000)
    """Tokens of one request before the first new one."""
    output_tokens: int | None = Field(default=None, ge=1, le=100_000_000)
    context_len: int | None = Field(default=None, ge=1, le=100_000_000)
    """Cached tokens of a sequence at a typical decode step."""
    concurrency: int | None = Field(default=None, ge=1, le=1_000_000)
    """Requests under way at a time."""
    weight: float = Field(default=1.0, gt=0)
    """How much it counts when shares are averaged over all traffic."""

    @property
    def tokens(self) -> int:
        """Rows that a step handles: new tokens of all sequences, or images."""
        return self.batch_size * (self.input_tokens or 1) if self.phase in ("prefill", "training") else self.batch_size

    @property
    def length(self) -> int | None:
        """Tokens that a query of this traffic can see: its prompt while it is read, its context afterwards."""
        return self.input_tokens if self.phase in ("prefill", "training") else self.context_len


class Loss(Strict):
    """One figure of the accuracy budget."""

    metric: str = Field(min_length=1)
    """With its unit if it has one: ``kl_divergence_nats``, ``mask_iou``, ``top1_percent``."""
    limit: float
    """The worst value that is still good enough."""
    better: Literal["higher", "lower"]
    data: str | None = None
    """On what it is measured."""


class TargetOperator(Strict):
    """One operator row of a target."""

    operator: str = Field(min_length=1, max_length=60, pattern=r"^[a-z0-9]+(_[a-z0-9]+)*$")
    name: str = Field(min_length=1, max_length=200)
    """What the model calls it."""
    axes: dict[str, int]
    """Fixed axes; axes that follow the traffic are left out."""
    per_token: dict[str, int] = Field(default_factory=dict)
    """Axes that are so many times the rows of a step (``Traffic.tokens``): ``num_tokens_expanded = 8`` of top-8."""
    per_sequence: dict[str, int] = Field(default_factory=dict)
    """Axes that are so many times the sequences of a step: ``m = 1`` of an output head, which needs last rows alone."""
    dtypes: list[str]
    """The dtype of the data first, then those of caches and states."""
    calls_per_step: float | None = Field(default=None, gt=0)
    """Calls a forward pass; None if the source does not say. A mean, so 2.5 is possible in a measured one."""
    share: float | None = Field(default=None, gt=0, le=1)
    """Share of the step's time, the weighted mean over the traffic; None if nobody measured or estimated it."""
    share_from: ShareSource | None = None
    shares: dict[str, float] = Field(default_factory=dict)
    """The same for each traffic; a traffic that is not named has none of it."""
    traffic: list[str] = Field(default_factory=list)
    """Names of the only traffic that runs it; empty for all traffic of its phase."""
    phase: Phase | None = None
    kernels: list[str] = Field(default_factory=list)
    """Names that a profiler showed, the longest-running first."""
    note: str | None = None

    @model_validator(mode="after")
    def _says_where_from(self) -> Self:
        if (self.share is None) != (self.share_from is None):
            raise ValueError("share and share_from belong together")
        if self.shares and self.share is None:
            raise ValueError("shares need share, their mean over the traffic")
        if any(not 0 < one <= 1 for one in self.shares.values()):
            raise ValueError("expected shares above 0 and at most 1")
        places = (self.axes, self.per_token, self.per_sequence)
        if any(not 0 <= size <= 1 << 50 for place in places for size in place.values()):
            raise ValueError("expected axes of 0 to 2^50")
        named = [axis for place in places for axis in place]
        if len(set(named)) != len(named):
            raise ValueError("an axis stands in more than one of axes, per_token and per_sequence")
        return self

    def runs_under(self, traffic: Traffic) -> bool:
        """Tell whether a step of this traffic has calls of this row."""
        if self.traffic:
            return traffic.name in self.traffic
        return self.phase is None or traffic.phase is None or self.phase == traffic.phase

    def axes_under(self, traffic: Traffic, wanted: Sequence[str]) -> dict[str, int]:
        """Return the axes of one call under a traffic.

        Args:
            traffic: One of the target's.
            wanted: Axes of the operator's spec, in its order.

        Returns:
            Sizes by name; an axis that neither the row nor the traffic says is left out.
        """
        known = _from_traffic(traffic, self.axes)
        known |= {axis: traffic.tokens * each for axis, each in self.per_token.items()}
        known |= {axis: traffic.batch_size * each for axis, each in self.per_sequence.items()}
        known |= self.axes
        return {axis: known[axis] for axis in wanted if axis in known}


def _from_traffic(traffic: Traffic, axes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes that follow from the traffic alone, by the names that operator specs give them."""
    sizes = dict.fromkeys(("m", "num_tokens"), traffic.tokens)
    sizes |= dict.fromkeys(("num_rows", "num_seqs", "batch", "batch_size"), traffic.batch_size)
    length = traffic.length
    if length is not None:
        page = axes.get("page_size", PAGE_SIZE) or 1
        pages = math.ceil(length / page)
        sizes |= {"context_len": length, "max_position": length, "kv_len": length, "page_size": page}
        sizes |= {"max_pages": pages, "num_pages": pages * axes.get("num_seqs", traffic.batch_size)}
    if traffic.phase in ("prefill", "training") and traffic.input_tokens is not None:
        sizes |= dict.fromkeys(("q_len", "seq_len"), traffic.input_tokens)
    elif traffic.phase == "decode":
        sizes |= dict.fromkeys(("q_len", "seq_len"), 1)
    return sizes


class Unnamed(Strict):
    """Time in a profile that no rule gives to an operator; kept, because hiding it would falsify every other share."""

    name: str = Field(min_length=1, max_length=300)
    """As the profiler shows it."""
    share: float = Field(gt=0, le=1)
    calls_per_step: float | None = Field(default=None, gt=0)


class Target(Strict):
    """A fixed deployment."""

    model: str = Field(min_length=1)
    devices: list[str] = Field(min_length=1)
    """Device names as reported, or families."""
    device_count: int = Field(ge=1, le=1_000_000)
    parallelism: dict[str, int] = Field(default_factory=dict)
    """``tensor``, ``expert``, ``pipeline`` or ``data`` to a number of devices; shapes are those of one device."""
    precision: str = Field(min_length=1)
    storage: dict[str, str] = Field(default_factory=dict)
    """What is stored (``experts``, ``kv_cache``, ``state`` …) to its dtype."""
    traffic: list[Traffic] = Field(min_length=1)
    accuracy: str = Field(min_length=1)
    """What may not be lost, and who judges it."""
    accuracy_budget: list[Loss] = Field(default_factory=list)
    """The same in figures, where somebody set some."""
    goals: list[Goal] = Field(min_length=1)
    operators: list[TargetOperator] = Field(default_factory=list)
    unnamed: list[Unnamed] = Field(default_factory=list)
    share_basis: str | None = None
    """How shares were measured, or from which figures they were estimated."""

    @field_validator("traffic", mode="before")
    @classmethod
    def _words_alone(cls, given: object) -> object:
        """Take traffic that is described in words only, as version 1 of the shipped targets was."""
        if not isinstance(given, list):
            return given
        return [
            {"name": f"traffic-{number}", "summary": one} if isinstance(one, str) else one
            for number, one in enumerate(given, start=1)
        ]

    @model_validator(mode="after")
    def _refers_to_itself_correctly(self) -> Self:
        names = [one.name for one in self.traffic]
        if len(set(names)) != len(names):
            raise ValueError("two traffic patterns have the same name")
        for place, name in self._traffic_names():
            if name not in names:
                raise ValueError(f"{place}: expected a traffic of {', '.join(names)}, found {name!r}")
        for kind, count in self.parallelism.items():
            if kind not in ("tensor", "expert", "pipeline", "data") or count < 1:
                raise ValueError("parallelism: expected tensor, expert, pipeline or data and at least 1")
        for what, dtype in self.storage.items():
            if dtype not in vocabulary.DTYPES:
                raise ValueError(f"storage.{what}: expected one of {', '.join(vocabulary.DTYPES)}, found {dtype!r}")
        return self

    def _traffic_names(self) -> Iterator[tuple[str, str]]:
        """Yield every place that names a traffic, and the name."""
        for goal in self.goals:
            if goal.traffic is not None:
                yield f"goal {goal.metric}", goal.traffic
        for row in self.operators:
            for name in (*row.traffic, *row.shares):
                yield f"operator row {row.name!r}", name

    @model_validator(mode="after")
    def _shares_add_up(self) -> Self:
        whole = 1 + SHARE_SLACK
        total = math.fsum(row.share or 0 for row in self.operators) + math.fsum(one.share for one in self.unnamed)
        if total > whole:
            raise ValueError(f"the shares of all rows add up to {total:.3f}, which is above 1")
        weights = math.fsum(one.weight for one in self.traffic)
        for one in self.traffic:
            part = math.fsum(row.shares.get(one.name, 0) for row in self.operators)
            if part > whole:
                raise ValueError(f"the shares under {one.name} add up to {part:.3f}, which is above 1")
        for row in self.operators:
            mean = math.fsum(row.shares.get(one.name, 0) * one.weight for one in self.traffic) / weights
            if row.shares and row.share is not None and abs(mean - row.share) > SHARE_SLACK:
                raise ValueError(f"operator row {row.name!r}: share {row.share:g} is not the mean {mean:.4f} of shares")
        return self


class Campaign(Strict):
    """An optimisation run on a target; its figures are the entry's claims."""

    target: str
    """Id of the target entry."""
    baseline: str
    """What had to be beaten, with its version if it is known."""
    duration_days: float | None = Field(default=None, gt=0)
    tokens: int | None = Field(default=None, gt=0)
    """Language-model tokens used, in and out."""
    gpu_hours: float | None = Field(default=None, gt=0)
    usd: str | None = None
    """Money, in the source's own words."""
    reused: list[str] = Field(default_factory=list)
    """Ids of the campaigns or entries whose knowledge it started from."""
    produced: list[str] = Field(default_factory=list)
    open_points: list[str] = Field(default_factory=list)
    """What the source itself says is not shown yet."""
