"""Shares of time that nobody has measured, estimated by a roofline of every operator."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kb import hardware
from kb.errors import DeviceUnavailableError
from kb.hardware import Device
from kb.models.documents import Target, TargetOperator, Traffic
from kb.targeting.costs import OWN, CostModel

MEMORY_FRACTION = 0.8
COMPUTE_FRACTION = 0.7
"""What of its peaks a device gives to a good kernel, typically."""
CALL_US = 2.0
"""What a call costs on top, in a captured graph."""

Specs = Callable[[str], CostModel | None]
"""Returns the cost model of an operator's spec, or None."""

_PEAKS = {
    "float8_e4m3fn": "tflops.fp8", "float8_e5m2": "tflops.fp8", "float32": "tflops.tf32", "int8": "tflops.int8",
}  # fmt: skip
"""Dtype to the matrix units that multiply it. Weights of four bits meet 16-bit activations in the specs."""


@dataclass(frozen=True)
class Peaks:
    """What an estimate knows of a device."""

    device: str
    bytes_per_us: float
    flops_per_us: Mapping[str, float]
    """By key of the hardware table."""
    link_bytes_per_us: float | None

    def compute(self, dtype: str) -> float:
        """Return operations a microsecond in a dtype."""
        return self.flops_per_us.get(_PEAKS.get(dtype, "tflops.bf16"), self.flops_per_us["tflops.bf16"])


def peaks_of(name: str) -> Peaks:
    """Return the peaks of a device, of the fastest member of a family.

    Args:
        name: As ``kb.hardware.resolve`` takes it.

    Raises:
        DeviceUnavailableError: The name is not known, or the table lacks its bandwidth or its bfloat16 peak.
    """
    scope = hardware.resolve(name)
    complete = [each for each in scope.members if each.value("mem_gbps") and each.value("tflops.bf16")]
    if not complete:
        raise DeviceUnavailableError(
            f"{scope.label}: no bandwidth and peak rate in the hardware table", hint="shares cannot be estimated there"
        )
    best: Device = max(complete, key=lambda each: (each.value("tflops.bf16") or 0, each.value("mem_gbps") or 0))
    rates = {key: one.value * 1e6 for key, one in best.figures.items() if key.startswith("tflops.")}
    link = best.value("link_gbps_total")
    return Peaks(
        best.device_names[0], (best.value("mem_gbps") or 0) * 1e3, rates, None if link is None else link / 2 * 1e3
    )


def latency_us(row: TargetOperator, traffic: Traffic, peaks: Peaks, specs: Specs) -> float | None:
    """Return the estimated time of one call in microseconds; None if its cost or one of its axes is not known."""
    if row.operator in ("all_reduce", "all_reduce_rmsnorm"):
        return _all_reduce(row, traffic, peaks)
    model = OWN.get(row.operator) or specs(row.operator)
    if model is None:
        return None
    axes = row.axes_under(traffic, model.axes)
    if len(axes) < len(model.axes):
        return None
    known = [dtype for dtype in row.dtypes if dtype in model.dtypes]
    dtype = known[0] if known else (model.dtypes[0] if model.dtypes else (row.dtypes or ["bfloat16"])[0])
    work = model.work(axes, dtype)
    units = row.dtypes[0] if row.dtypes else dtype
    return CALL_US + max(
        work.moved_bytes / (peaks.bytes_per_us * MEMORY_FRACTION),
        work.flops / (peaks.compute(units) * COMPUTE_FRACTION),
    )


def _all_reduce(row: TargetOperator, traffic: Traffic, peaks: Peaks) -> float | None:
    axes = row.axes_under(traffic, ("world_size", "num_tokens", "hidden_size"))
    if len(axes) < 3 or peaks.link_bytes_per_us is None:
        return None
    ranks = axes["world_size"]
    moved = 2 * (ranks - 1) / ranks * axes["num_tokens"] * axes["hidden_size"] * 2
    return 5 * CALL_US + moved / (peaks.link_bytes_per_us * COMPUTE_FRACTION)


def estimated(target: Target, specs: Specs) -> Target:
    """Return a target whose rows have shares of time, where their cost is known.

    Args:
        target: With traffic in numbers; what shares it has are replaced.
        specs: Cost models of the operators' specs.

    Returns:
        The same target; ``share_basis`` says what the shares rest on. Rows of unknown cost have no share and are not
        part of the whole.

    Raises:
        DeviceUnavailableError: Its first device is not in the hardware table.
    """
    peaks = peaks_of(target.devices[0])
    times = [
        {one.name: spent for one in target.traffic if (spent := _step_us(row, one, peaks, specs)) is not None}
        for row in target.operators
    ]
    totals = {one.name: sum(each.get(one.name, 0.0) for each in times) for one in target.traffic}
    weights = {one.name: one.weight for one in target.traffic}
    rows = [_with_shares(row, each, totals, weights) for row, each in zip(target.operators, times, strict=True)]
    missing = sum(row.share is None for row in rows)
    return target.model_copy(update={"operators": rows, "share_basis": _basis(peaks, missing)})


def _step_us(row: TargetOperator, traffic: Traffic, peaks: Peaks, specs: Specs) -> float | None:
    if not row.runs_under(traffic):
        return None
    each = latency_us(row, traffic, peaks, specs)
    return None if each is None else each * (row.calls_per_step or 1)


def _with_shares(
    row: TargetOperator, times: Mapping[str, float], totals: Mapping[str, float], weights: Mapping[str, float]
) -> TargetOperator:
    parts = {name: _rounded(spent / totals[name]) for name, spent in times.items()}
    if not parts:
        return row.model_copy(update={"share": None, "share_from": None, "shares": {}})
    mean = sum(part * weights[name] for name, part in parts.items()) / sum(weights.values())
    several = parts if len(weights) > 1 else {}
    return row.model_copy(update={"share": _rounded(mean), "share_from": "estimated", "shares": several})


def _rounded(share: float) -> float:
    return float(f"{min(1.0, share):.3g}")


def _basis(peaks: Peaks, missing: int) -> str:
    text = (
        f"estimated: {CALL_US:g} us a call plus the roofline floor of its cost at {MEMORY_FRACTION:.0%} of "
        f"{peaks.bytes_per_us / 1e3:g} GB/s and {COMPUTE_FRACTION:.0%} of the peak rate "
        f"({peaks.flops_per_us['tflops.bf16'] / 1e6:g} TFLOP/s in bfloat16) of {peaks.device}"
    )
    return text + (f"; {missing} rows of unknown size are not counted" if missing else "")
