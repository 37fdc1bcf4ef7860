"""The parts of a record that hold figures: device, timing, memory, kernels. Strict; units in the names.

What was not measured is None, never 0. How each figure comes about is said in docs/records.md.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from kb.models.claims import Strict

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]
Microseconds = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0)]


class Peaks(Strict):
    """What the machine delivered when the judge measured it, to hold claims of hardware and of speed against."""

    copy_gbps: Rate | None = None
    """Device memory, bytes read plus bytes written, 10⁹ a second."""
    matmul_tflops: dict[str, Rate] = Field(default_factory=dict)
    """dtype to 10¹² operations a second, multiply and add counted as two."""
    launch_us: Microseconds | None = None
    """One empty launch, as called."""
    l2_bytes: Count | None = None


class Device(Strict):
    """What the judge read of the hardware; never asked of a candidate."""

    name: str = Field(min_length=1, max_length=120)
    """As the device reports it; ``cpu`` for a processor."""
    arch: str = Field(pattern=r"^[a-z0-9_]{1,20}$")
    """``sm_90``, ``gfx942``, ``cpu``."""
    uuid: str | None = None
    capability: str | None = None
    """``9.0``."""
    memory_bytes: Count | None = None
    sms: Count | None = None
    l2_bytes: Count | None = None
    driver: str | None = None
    cuda_driver: str | None = None
    """Newest CUDA that the driver knows."""
    boot_id: str | None = None
    """Changes with every start of the host."""
    peaks: Peaks | None = None
    machine: str | None = None
    model: str | None = None
    """Of the host's processor."""
    cores: Count | None = None
    kernel: str | None = None
    system: str | None = None
    more: dict[str, str | int | float | bool | None] = Field(default_factory=dict)
    """What else was read: clocks, power limit, ECC, MIG, VBIOS, modes."""


class Asked(Strict):
    """The workload of one timing."""

    axes: dict[str, int]
    dtype: str
    law: str
    note: str = ""


class Regime(Strict):
    """How the calls met the caches, and how they were launched."""

    cache: Literal["cold", "warm"]
    launch: Literal["eager", "graph"]


class Telemetry(Strict):
    """What the device said of itself around a block."""

    sm_mhz: float | None = None
    mem_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle: list[str] = Field(default_factory=list)
    """Reasons for which clocks were held down."""


class Block(Strict):
    """One batch of calls of one side."""

    who: Literal["candidate", "baseline"]
    wall_us: Microseconds
    """Per call, by the judge's own clock outside of the process."""
    device_us: Microseconds | None
    """Per call, by the device's events."""
    telemetry: Telemetry | None


class Spread(Strict):
    """Times of one side, microseconds per call."""

    median: Microseconds
    p10: Microseconds
    p90: Microseconds
    min: Microseconds
    n: int = Field(ge=1)


class BaselineUsed(Strict):
    """What was timed against."""

    name: str = Field(min_length=1, max_length=160)
    version: str = Field(min_length=1, max_length=80)
    source_sha256: Sha256


class Timing(Strict):
    """One timing: a workload in a regime, against a baseline."""

    workload: Asked
    regime: Regime
    calls_per_batch: int = Field(ge=1)
    slots: int = Field(ge=1)
    """Sets of arguments that the calls go through."""
    blocks: list[Block]
    candidate_us: Spread
    baseline_us: Spread | None
    baseline: BaselineUsed | None
    ratio: Rate | None
    """Baseline over candidate: above 1 the candidate is faster."""
    interval: Annotated[list[Rate], Field(min_length=2, max_length=2)] | None
    """Of the ratio, by bootstrap over blocks."""
    noise: float | None = Field(ge=0)
    """Half width of the same ratio of the baseline against itself."""
    verdict: Literal["FAST", "SLOW", "SAME", "AMBIGUOUS"] | None
    """None where there was no baseline."""
    floor_us: Microseconds | None
    """What the machine's measured peaks allow at best."""
    roofline: float | None = Field(ge=0)
    """Floor over the candidate's median; above 1 is below the floor, and quarantined."""
    bound: Literal["memory", "compute", "launch"] | None
    clocks_agree: bool
    quarantined: str | None
    """Why this result counts for nothing; None if it counts."""
    confirms: bool
    """True if it is a confirmation run whose result replaced the first one's."""


class Memory(Strict):
    """Most memory in use at one time, bytes."""

    allocator_peak_bytes: Count | None = None
    """As the framework's allocator, or an allocation strategy's own books, count."""
    outside_peak_bytes: Count | None = None
    """As the device counts, from outside of the process."""
    host_peak_bytes: Count | None = None
    """Resident memory of the worker's processes."""
    figures: dict[str, Any] | None = None
    """For allocation strategies: what the operator's ``metrics`` names, over all traces and by trace."""


class Essential(Strict):
    """Work that no implementation of a workload can avoid, from the operator's cost model."""

    workload: Asked
    flops: Count
    """Multiply and add counted as two."""
    essential_bytes: Count
    """Each input read once, each output written once."""


class KernelSeen(Strict):
    """One kernel that ran on the device."""

    name: str
    launches: Count
    us: float = Field(ge=0)
    owner: Literal["own", "generated", "library"]


class Kernels(Strict):
    """Which kernels ran, in a run of their own that was not timed."""

    device: list[KernelSeen]
    own_share: Share | None
    """Of the device time, in kernels of the source; None where nothing ran."""
    generated_share: Share | None
    """Likewise, in kernels that a compiler wrote."""
    declared: list[str]
    never_ran: list[str]
    """Declared kernels under ``triton.jit`` that no row shows."""
    jitted_ran: bool | None = None
    """Whether one of those under ``triton.jit`` ran; None where none is declared, and in records that do not say."""


class Determinism(Strict):
    """One call of a workload, made twice with equal inputs."""

    workload: Count
    """Index into the plan's workloads."""
    bitwise: bool
    max_difference: float | None = Field(ge=0)
    """Largest absolute difference; None where results cannot be subtracted."""


def device_facts(raw: dict[str, Any]) -> dict[str, Any]:
    """Check the facts of a device and return them as they are.

    Raises:
        ValidationError: A fact is missing, or of another type.
    """
    Device.model_validate(raw)
    return raw
