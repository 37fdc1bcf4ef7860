"""What a prediction is made from, and what it says. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping

from kb.values import Frozen

SAME_DEVICE = "same_device"
SIBLING = "sibling"
OTHER_MEMORY = "other_memory"
GENERATIONS = "generations"
CALIBRATED = "calibrated"
CASES = (SAME_DEVICE, SIBLING, OTHER_MEMORY, GENERATIONS, CALIBRATED)
"""How far the measurements are from what is asked: another shape on the same device, a chip of the same design, the
same chip with other memory, another generation; and any of the last three with measurements on the target itself."""


class Work(Frozen):
    """What one call cannot avoid, from the operator's cost model."""

    flops: float
    """Multiply and add counted as two; 0 where there is no arithmetic to speak of."""
    moved_bytes: float
    """Each input read once, each output written once."""
    dtype: str
    """In which products are made, in torch's long names or ``nvfp4``, ``mxfp4``; decides the peak."""


class Ask(Frozen):
    """What is to be predicted: one kernel at one shape on one device."""

    device: str
    """A reported name, a product or a family; a family is as fast as its slowest member."""
    operator: str
    kernel: str
    """What runs: the id of an entry, or backend and name of the kernel. Another kernel says nothing about it."""
    series: str
    """All that has to be equal for two measurements to be of one problem: formats and the sizes of the model (heads,
    widths, experts, as sharded). :func:`kb.prediction.split_axes` makes it."""
    axes: Mapping[str, float]
    """Sizes of the traffic: tokens, batch, lengths. These may differ from measurement to measurement."""
    work: Work


class Sample(Frozen):
    """One measured latency; the fields of :class:`Ask`, and the time."""

    device: str
    operator: str
    kernel: str
    series: str
    axes: Mapping[str, float]
    work: Work
    latency_us: float
    """Median or mean of one call, as the source chose."""


class Flagged(Frozen):
    """A measurement that no prediction is made from, with the reason."""

    sample: Sample
    fault: str
    """``invalid``, ``below_floor``, ``in_cache`` or ``host_cost``."""
    detail: str


class Prediction(Frozen):
    """The latency of an :class:`Ask`, or the statement that it cannot be predicted."""

    predictable: bool
    reasons: tuple[str, ...]
    """Why, how, and from what; never empty."""
    latency_us: float | None = None
    """None if not predictable, as the two bounds."""
    low_us: float | None = None
    high_us: float | None = None
    """Bounds of the interval that holds the true latency in 90 % of cases."""
    case: str | None = None
    """One of ``CASES``."""
    refusal: str | None = None
    """``other_kernel``, ``unseen_shard``, ``no_measurements``, ``all_flagged``, ``unknown_device``, ``no_peak``,
    ``unusable_ask``."""
    floor_us: float | None = None
    """What the target's peaks allow at best; known also for most of what is not predictable."""
    bound: str | None = None
    """``memory`` or ``compute`` at the asked shape."""
    source: str | None = None
    """Device of the measurements that counted."""
    flagged: tuple[Flagged, ...] = ()


class SpeedUp(Frozen):
    """Latency of a baseline over latency of a candidate, with its 90 % interval; above 1 the candidate is faster."""

    ratio: float
    low: float
    high: float
