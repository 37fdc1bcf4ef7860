"""What is asked of one timed batch, and what its clocks said."""

from dataclasses import asdict, dataclass


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
    """From the answer until some calls' outputs were answered for, see ``commitment``; on a CPU, handed over."""
    sweep_us: float | None
    """How long the worker took to get ready, with a sweep in it; None where the judge sweeps itself."""

    def rounded(self) -> dict[str, float | None]:
        """Return the times as a side file holds them, to the nanosecond."""
        return {name: None if value is None else round(value, 3) for name, value in asdict(self).items()}
