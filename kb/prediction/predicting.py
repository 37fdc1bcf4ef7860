"""Predict one latency."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from kb import hardware
from kb.errors import DeviceUnavailableError
from kb.hardware import Device
from kb.prediction.floor import floor_of, slowest
from kb.prediction.values import GENERATIONS, SAME_DEVICE, Ask, Prediction, Sample, SpeedUp

TRAFFIC = frozenset(
    {
        "batch_size", "num_tokens", "tokens", "m", "rows", "seq_len", "num_seqs", "query_len", "kv_len", "context_len",
        "isl", "step", "max_kv_len", "total_tokens", "num_queries", "num_rows", "length",
    }
)  # fmt: skip
"""Sizes that change from call to call of one deployment; all others belong to the model and how it is sharded."""


def split_axes(axes: Mapping[str, float], *formats: str) -> tuple[str, dict[str, float]]:
    """Split the axes of a workload into what names its series and what may differ within it.

    Args:
        axes: Axis to size.
        formats: dtypes and whatever else has to be equal.

    Returns:
        The series, and the sizes of the traffic.
    """
    fixed = [f"{name}={axes[name]:g}" for name in sorted(axes) if name not in TRAFFIC]
    return " ".join([*formats, *fixed]), {name: float(axes[name]) for name in axes if name in TRAFFIC}


def predict(ask: Ask, samples: Iterable[Sample]) -> Prediction:
    """Predict the latency of a kernel at a shape on a device from measurements elsewhere.

    Args:
        ask: What is asked.
        samples: Measurements, of any kernel and device; those that say nothing about ``ask`` are left out.

    Returns:
        Latency with a 90 % interval, or a refusal with its reason: another kernel, an unseen shard, an unknown device.
        Bad measurements raise nothing: they are flagged in the answer.
    """
    try:
        device = slowest(hardware.resolve(ask.device))
    except DeviceUnavailableError as error:
        return Prediction(False, (error.message,), refusal="unknown_device")
    floor = None if device is None else floor_of(ask.work, device)
    if device is None or floor is None:
        return Prediction(False, (f"the hardware table has no peak for {ask.device}",), refusal="no_peak")
    of_kernel = [one for one in samples if one.kernel == ask.kernel and one.operator == ask.operator]
    fitting = [one for one in of_kernel if one.series == ask.series]
    if not fitting:
        refusal = "unseen_shard" if of_kernel else "other_kernel"
        reason = "this kernel was never measured at these sizes of the model" if of_kernel else "never measured"
        return Prediction(False, (reason,), refusal=refusal, floor_us=floor.us, bound=floor.bound)
    scaled = _scaled(ask, fitting, floor_us=floor.us)
    if scaled is None:
        reason = "no measurement is on a device with known peaks"
        return Prediction(False, (reason,), refusal="no_measurements", floor_us=floor.us, bound=floor.bound)
    latency, source = scaled
    case = SAME_DEVICE if source.name == device.name else GENERATIONS
    return Prediction(
        True,
        (f"floor on {device.name} over the efficiency on {source.name}",),
        latency_us=latency,
        low_us=max(floor.us, latency / 1.7),
        high_us=latency * 1.7,
        case=case,
        floor_us=floor.us,
        bound=floor.bound,
        source=source.device_names[0],
    )


def _scaled(ask: Ask, fitting: list[Sample], *, floor_us: float) -> tuple[float, Device] | None:
    best: tuple[float, float, Device] | None = None
    for one in fitting:
        device = slowest(hardware.resolve(one.device))
        there = None if device is None else floor_of(one.work, device)
        if device is None or there is None or there.us <= 0:
            continue
        distance = sum(abs(math.log(ask.axes.get(name, size) / size)) for name, size in one.axes.items() if size > 0)
        if best is None or distance < best[0]:
            best = (distance, floor_us * max(1.0, one.latency_us / there.us), device)
    return None if best is None else best[1:]


def speed_up(candidate: Prediction, baseline: Prediction) -> SpeedUp | None:
    """Return how much faster a candidate is expected to be than a baseline; None if either cannot be predicted.

    The errors are taken as independent: the widths of the two intervals add up in squares of their logarithms.
    """
    if not (candidate.latency_us and candidate.low_us and candidate.high_us):
        return None
    if not (baseline.latency_us and baseline.low_us and baseline.high_us):
        return None
    ratio = baseline.latency_us / candidate.latency_us
    up = math.hypot(math.log(baseline.high_us / baseline.latency_us), math.log(candidate.latency_us / candidate.low_us))
    down = math.hypot(
        math.log(baseline.latency_us / baseline.low_us), math.log(candidate.high_us / candidate.latency_us)
    )
    return SpeedUp(ratio, ratio * math.exp(-down), ratio * math.exp(up))
