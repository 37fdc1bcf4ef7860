"""The least time that a machine can take for a workload, from the operator's cost and the machine's measured peaks.

    floor = max(essential bytes / bandwidth, operations / rate of the precision, one launch)

Bandwidth is that of device memory, or, for a warm working set that fits into the last-level cache, that of the cache.
The ``hard`` floor is what no honest result undercuts: the same without the launch, at peaks raised by ``HEADROOM``,
since a peak that was measured is not the highest there is, and never beyond a published ceiling where one is known.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kb.validators.operators.spec import Buffer, Cost, Operator, Workload

HEADROOM = {"cuda": 1.15, "cpu": 2.0}
"""Factor by which a machine may be better than it was when its peaks were measured; a shared CPU varies more."""

LOW_BITS = ("float8_e4m3fn", "float8_e5m2", "uint8", "int8", "float4")
"""Formats whose products may run at the rate of the narrowest format that was measured."""

FOUR_BIT_GAIN = 2.0
"""4-bit products run at most at twice the 8-bit rate on any device so far; they may be behind any narrow format, which
counts for what is believed and not for the roofline."""


@dataclass(frozen=True)
class Floor:
    """Least times of one workload in one regime, microseconds a call."""

    us: float
    """At the measured peaks, a launch included."""
    bound: str
    """``memory``, ``compute`` or ``launch``: which of the terms is largest."""
    hard_us: float
    """Below this a result is not believed."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"us": self.us, "bound": self.bound, "hard_us": self.hard_us}


def rate_tflops(peaks: Mapping[str, Any], dtype: str) -> float:
    """Return the rate of products whose result is as exact as ``dtype`` asks, 10¹² operations a second.

    Args:
        peaks: As ``peaks.measure`` returns them.
        dtype: Of the operands, see ``operand_dtype``.

    Returns:
        For float32 also a third of the bfloat16 rate, since three bfloat16 products make up a float32 one; for formats
        of 8 bits and less the best rate that was measured.
    """
    rates: Mapping[str, float] = peaks["matmul_tflops"]
    half = max((rates[name] for name in ("bfloat16", "float16") if name in rates), default=0.0)
    if dtype in ("float32", "float64"):
        return max(rates.get("float32", 0.0), half / 3)
    if dtype in LOW_BITS:
        return max(rates.values())
    return max(half, rates.get("float32", 0.0))


def operand_dtype(operator: Operator, workload: Workload) -> str:
    """Return the dtype in which an operator's products may be made: that of its first tensor.

    A product of FP8 operands has a 16-bit result and runs at the rate of FP8; activations that are 4-bit numbers in a
    16-bit tensor may be multiplied as such.
    """
    if workload.axes.get("activation_bits", 16) < 16:
        return "uint8"
    first = next(one for one in operator.inputs if isinstance(one, Buffer))
    return workload.dtype if first.dtype == "data" else first.dtype


def floor_of(
    cost: Cost,
    *,
    dtype: str,
    cache: str,
    launch: str,
    peaks: Mapping[str, Any],
    kind: str,
    resident_bytes: float = 0.0,
    ceilings: Mapping[str, float] | None = None,
) -> Floor:
    """Compute the floor of one call.

    Args:
        cost: Essential bytes and operations, from the operator.
        dtype: The workload's dtype.
        cache: ``cold`` or ``warm``.
        launch: ``eager`` or ``graph``.
        peaks: As ``peaks.measure`` returns them.
        kind: ``cpu`` or ``cuda``.
        resident_bytes: Bytes per call that need not reach device memory within a batch, since what is written last
            stays in the cache: the cache's size over the number of calls. The hard floor alone allows for them.
        ceilings: Published peaks where they are known: ``mem_gbps``, ``tflops`` (of the precision); None if not.

    Returns:
        The floor; times in microseconds.
    """
    gbps = peaks["copy_gbps"]
    if cache == "warm" and cost.essential_bytes <= peaks["l2_bytes"]:
        gbps = max(gbps, peaks.get("l2_gbps") or gbps)
    else:
        gbps = max(gbps, peaks.get("read_gbps") or gbps)
    tflops = rate_tflops(peaks, dtype)
    launch_us = peaks["launch_us"] if launch == "eager" else peaks.get("node_us") or peaks["launch_us"]
    compute_us = cost.flops / tflops / 1e6 if tflops else 0.0
    terms = {"memory": cost.essential_bytes / gbps / 1e3, "compute": compute_us, "launch": launch_us}
    bound = max(terms, key=lambda name: terms[name])
    moved = max(cost.essential_bytes - resident_bytes, 0.0) if cache == "cold" else cost.essential_bytes
    gain = FOUR_BIT_GAIN if dtype in LOW_BITS else 1.0
    hard = max(moved / gbps / 1e3, compute_us / gain) / HEADROOM[kind]
    published = ceilings or {}
    if cache == "cold" and published.get("mem_gbps"):
        hard = max(hard, moved / published["mem_gbps"] / 1e3)
    if published.get("tflops"):
        hard = max(hard, cost.flops / published["tflops"] / 1e6)
    return Floor(max(terms.values()), bound, hard)
