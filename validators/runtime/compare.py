"""Compare a candidate's results with the float64 reference under the operator's error model."""

from dataclasses import dataclass

import torch

from kb.validators.operators.spec import DTYPES, UNDERFLOW, UNIT_ROUNDOFF, Arguments, Buffer, ErrorModel, Operator


@dataclass(frozen=True)
class Comparison:
    """How one output of one call compares."""

    verdict: str
    """``passed``, ``wrong_shape``, ``wrong_dtype`` or ``wrong_values``."""
    max_normalised: float | None
    """Worst error over its own bound, unitless; at most 1 passes. None where nothing could be compared."""
    detail: str = ""


def bound(error: ErrorModel, expected: torch.Tensor, scale: torch.Tensor, *, dtype: str) -> torch.Tensor:
    """Return the largest admissible error of each element.

    Args:
        error: The operator's constants.
        expected: float64 reference, any shape.
        scale: Condition scale S, broadcastable to ``expected``.
        dtype: Output dtype name.

    Returns:
        float64, the shape of ``expected``.
    """
    factor = error.c_acc * UNIT_ROUNDOFF[error.accumulate]
    if error.operand is not None:
        factor += error.c_operand * UNIT_ROUNDOFF[error.operand]
    rounding = UNIT_ROUNDOFF[dtype] * expected.abs() + UNDERFLOW[dtype]
    return factor * scale + error.c_out * rounding + error.tiny


def compare_output(
    actual: object, expected: torch.Tensor, *, buffer: Buffer, dtype: str, error: ErrorModel, scale: torch.Tensor | None
) -> Comparison:
    """Compare one output tensor.

    Args:
        actual: What the candidate returned.
        expected: float64 reference, or exact integers or booleans; the comparison runs where it is.
        buffer: The output's declaration.
        dtype: The workload's dtype; used where the buffer's dtype is ``data``.
        error: The operator's error model.
        scale: S, or None for S = |expected|.

    Returns:
        The comparison; never raises for anything a candidate can return.
    """
    wanted = dtype if buffer.dtype == "data" else buffer.dtype
    if type(actual) is not torch.Tensor:
        return Comparison(
            "wrong_dtype", None, f"{buffer.name}: a plain tensor was expected, got {type(actual).__name__}"
        )
    if tuple(actual.shape) != tuple(expected.shape):
        return Comparison(
            "wrong_shape", None, f"{buffer.name}: expected {tuple(expected.shape)}, got {tuple(actual.shape)}"
        )
    if actual.dtype != DTYPES[wanted]:
        return Comparison("wrong_dtype", None, f"{buffer.name}: expected {wanted}, got {actual.dtype}")
    if expected.numel() == 0:
        return Comparison("passed", 0.0)
    if not expected.is_floating_point():
        wrong = int((actual.to(expected.device) != expected).sum())
        return Comparison(
            "passed" if wrong == 0 else "wrong_values", float(wrong), f"{wrong} of {expected.numel()} differ"
        )
    got = actual.to(expected.device).to(torch.float64)
    finite = torch.isfinite(expected)
    same = torch.where(finite, torch.isfinite(got), (got == expected) | (got.isnan() & expected.isnan()))
    if not bool(same.all()):
        return Comparison("wrong_values", None, f"{buffer.name}: {int((~same).sum())} non-finite values differ")
    safe = torch.where(finite, expected, torch.zeros_like(expected))
    # A scale that is no number would admit anything: the value itself takes its place.
    size = safe.abs() if scale is None else torch.where(torch.isfinite(scale), scale, safe.abs())
    limit = bound(error, safe, size, dtype=wanted)
    ratio = torch.where(finite, (got - expected).abs() / limit, torch.zeros_like(expected))
    worst = float(ratio.max())
    return Comparison(
        "passed" if worst <= 1.0 else "wrong_values", worst, f"{buffer.name}: worst error {worst:.3g} bounds"
    )


def result_tensor(data: bytes, expected: torch.Tensor, *, buffer: Buffer, dtype: str) -> torch.Tensor | None:
    """Make a tensor of raw result bytes.

    Args:
        data: What a worker handed over.
        expected: Gives the shape.
        buffer: The output's declaration.
        dtype: The workload's dtype.

    Returns:
        The tensor on the CPU; None where the number of bytes is not the one of the declared dtype and shape.
    """
    wanted = DTYPES[dtype if buffer.dtype == "data" else buffer.dtype]
    if len(data) != expected.numel() * wanted.itemsize:
        return None
    flat = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    return flat.view(wanted).reshape(expected.shape)


def compare_call(
    operator: Operator, arguments: Arguments, actual: object, *, dtype: str, law: str = ""
) -> tuple[Comparison, ...]:
    """Compare every output of one call with the reference, computed here from ``arguments`` on the CPU.

    Args:
        operator: The trusted spec.
        arguments: The CPU arguments that the candidate was given, unmodified.
        actual: A tensor, or a tuple or list of tensors if the operator has several outputs.
        dtype: The workload's dtype.
        law: The law that drew ``arguments``; under one of ``exact_laws`` only the output rounding is admitted.

    Returns:
        One comparison an output; a wrong number of outputs is one ``wrong_shape``.
    """
    expected = operator.reference(*arguments)
    scales = operator.condition(*arguments) if operator.condition else (None,) * len(expected)
    got = tuple(actual) if isinstance(actual, (tuple, list)) else (actual,)
    if len(got) != len(expected):
        return (Comparison("wrong_shape", None, f"{len(expected)} outputs were expected, got {len(got)}"),)
    error = operator.error_under(law)
    return tuple(
        compare_output(one, want, buffer=buffer, dtype=dtype, error=error, scale=scale)
        for one, want, buffer, scale in zip(got, expected, operator.outputs, scales, strict=True)
    )
