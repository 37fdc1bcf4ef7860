"""What transfer and evidence need to know of an entry, as plain values; standard library only."""

from collections.abc import Mapping
from types import MappingProxyType

from kb.models.vocabulary import RUNNABLE
from kb.values import Frozen

_NOTHING: Mapping[str, str] = MappingProxyType({})
_NO_SIZES: Mapping[str, int] = MappingProxyType({})
_NO_LIMITS: Mapping[str, "Limit"] = MappingProxyType({})


class Limit(Frozen):
    """An executable predicate on one axis; None means no such condition."""

    min: int | None = None
    max: int | None = None
    multiple_of: int | None = None
    allowed: tuple[int, ...] | None = None

    def violation(self, size: int) -> str | None:
        """Say what is broken at ``size``, or None."""
        if self.min is not None and size < self.min:
            return f"below {self.min}"
        if self.max is not None and size > self.max:
            return f"above {self.max}"
        if self.multiple_of is not None and size % self.multiple_of:
            return f"not a multiple of {self.multiple_of}"
        if self.allowed is not None and size not in self.allowed:
            return f"not one of {', '.join(map(str, self.allowed))}"
        return None


class EntryFacts(Frozen):
    """The facts of one entry version that decide where it runs."""

    id: str
    kind: str
    language: str = "none"
    dtypes: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    smem_bytes: int | None = None
    hbm_bytes: int | None = None
    devices: int | None = None
    limits: Mapping[str, Limit] = _NO_LIMITS
    tuned_device: str | None = None
    """For a config: the device it was tuned on."""
    measured_on: tuple[str, ...] = ()
    """Device names with evidence ``measured`` or better by our own judge."""
    outcome: str = "works"
    cannot_run_on: Mapping[str, str] = _NOTHING
    """Architecture to reason, where the code is known not to run."""
    packages: Mapping[str, str] = _NOTHING
    """Package to version specifier (``>=3.4``) that its code needs."""
    tuned_axes: Mapping[str, int] = _NO_SIZES
    """For a config: the sizes it was tuned at."""


class Standing(Frozen):
    """What stands for an entry, somewhere."""

    level: str
    """One of ``vocabulary.EVIDENCE``."""
    freshness: str
    """One of ``vocabulary.FRESHNESS``."""
    device: str | None = None
    """Where the evidence was made; None if the claim names no device."""
    reasons: tuple[str, ...] = ()


class Transfer(Frozen):
    """A transfer class and why."""

    kind: str
    """One of ``vocabulary.TRANSFER``."""
    reasons: tuple[str, ...] = ()

    @property
    def runnable(self) -> bool:
        """True if the entry's own code runs on the device."""
        return self.kind in RUNNABLE
