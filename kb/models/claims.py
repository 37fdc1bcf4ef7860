"""Published figures, checked arithmetically when they are loaded."""

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kb.units import speedup_of


class Strict(BaseModel):
    """Base of all file formats: immutable, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Claim(Strict):
    """One figure that somebody published; evidence ``reported`` at most."""

    metric: str = Field(min_length=1, max_length=60)
    """What was measured, with its unit if it is a time or rate: ``decode_tokens_per_s``, ``latency_us``."""
    value: float = Field(gt=0)
    unit: str = Field(min_length=1, max_length=20)
    better: Literal["higher", "lower"]
    device: str = Field(min_length=1, max_length=80)
    """The device name as reported by the device: ``NVIDIA B200``."""
    workload: str = Field(min_length=1, max_length=160)
    backend: str | None = Field(default=None, max_length=120)
    """What ran; one name can hide another kernel, so a third party's figure must say it."""
    baseline: str | None = Field(default=None, max_length=120)
    """What it was compared with, with its version."""
    baseline_value: float | None = Field(default=None, gt=0)
    """The baseline's figure in the same unit; None if it was not published."""
    gain_percent: float | None = Field(default=None, gt=0)
    """The gain as published, in percent."""
    gain_kind: Literal["increase", "reduction"] | None = None
    """``increase``: (value / baseline - 1); ``reduction``: (1 - value / baseline)."""
    speedup: float | None = Field(default=None, gt=0)
    """Speed-up as published, if it was; otherwise it is derived."""
    source: str = Field(min_length=1, max_length=300)
    """Who published it, where; a stranger can find it."""

    @model_validator(mode="after")
    def _arithmetic_holds(self) -> "Claim":
        if (self.gain_percent is None) != (self.gain_kind is None):
            raise ValueError("gain_percent and gain_kind belong together")
        if (self.baseline_value is not None or self.gain_percent is not None) and self.baseline is None:
            raise ValueError("a comparison must name its baseline")
        if self.baseline_value is None:
            return self
        ratio = self.derived_speedup
        if ratio is not None and self.speedup is not None and not math.isclose(self.speedup, ratio, abs_tol=0.0051):
            raise ValueError(f"speedup {self.speedup:g} does not follow from the figures, which give {ratio:.3f}")
        if self.gain_percent is not None:
            change = self.value / self.baseline_value
            percent = 100 * (change - 1 if self.gain_kind == "increase" else 1 - change)
            if abs(percent - self.gain_percent) > 0.5 + 1e-9:
                raise ValueError(
                    f"gain_percent {self.gain_percent:g} does not follow from {self.value:g} against "
                    f"{self.baseline_value:g}, which give {percent:.1f}"
                )
        return self

    @property
    def derived_speedup(self) -> float | None:
        """Baseline time over candidate time (above 1 is faster), from the figures, else from what was stated."""
        return speedup_of(
            self.value,
            better=self.better,
            baseline_value=self.baseline_value,
            stated=self.speedup,
            gain_percent=self.gain_percent,
            gain_kind=self.gain_kind,
        )
