"""The two document kinds: what a target is, and what a campaign on it achieved."""

from typing import Literal

from pydantic import Field

from kb.models.claims import Strict


class Goal(Strict):
    """One metric that the target is judged by."""

    metric: str = Field(min_length=1)
    better: Literal["higher", "lower"]
    against: str | None = None
    """The baseline with its version."""
    gain_percent: float | None = Field(default=None, gt=0)
    """How much better than the baseline it has to be."""


class TargetOperator(Strict):
    """One operator row of a target."""

    operator: str = Field(min_length=1)
    name: str = Field(min_length=1)
    """What the model calls it."""
    axes: dict[str, int]
    """Fixed axes; axes that follow the traffic are left out."""
    dtypes: list[str]
    calls_per_step: int | None = Field(default=None, ge=1)
    """Calls a forward pass; None if the source does not say."""
    share: float | None = Field(default=None, gt=0, le=1)
    """Share of the step's time; None if nobody measured or estimated it."""
    share_from: Literal["measured", "estimated"] | None = None
    phase: str | None = None
    note: str | None = None


class Target(Strict):
    """A fixed deployment."""

    model: str = Field(min_length=1)
    devices: list[str] = Field(min_length=1)
    """Device names as reported, or families."""
    device_count: int = Field(ge=1)
    precision: str = Field(min_length=1)
    traffic: list[str] = Field(min_length=1)
    """Batch, lengths, concurrency, in words."""
    accuracy: str = Field(min_length=1)
    """What may not be lost, and who judges it."""
    goals: list[Goal] = Field(min_length=1)
    operators: list[TargetOperator] = Field(default_factory=list)


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
