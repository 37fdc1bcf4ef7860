"""What is asked of one timed batch, and what its clocks said."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Batch:
    """What is asked of one batch."""

    order: tuple[int, ...]
    """Slot of each call."""
    swaps: tuple[tuple[int, int, int], ...] = ()
    """Position in the order, its slot, and the spare whose contents come into it before the call."""
    launch: str = "eager"
    sweep_bytes: int = 0
    touch: bool = False


@dataclass(frozen=True)
class Clocked:
    """Times of one batch, microseconds."""

    wall_us: float
    device_us: float | None
    tail_us: float
    """From the answer until the outputs of some calls were handed over."""
    sweep_us: float | None
    """How long the worker took to get ready, with a sweep in it; None where the judge sweeps itself."""
