"""What Triton's interpreter does otherwise than a GPU, set right before a candidate is loaded.

The interpreter cuts float32 off when it makes bfloat16 of it, while every GPU rounds to the nearest value, ties to
even. A kernel that is right on its device would be one unit of bfloat16 off here with every store.
"""

import contextlib
import importlib
from typing import Any

import numpy as np
import numpy.typing as npt


def bfloat16_bits(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Return the bits of the nearest bfloat16 of each value, ties to even; NaN stays NaN.

    Args:
        values: float32 of any shape.
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    upper = bits >> 16
    rounded = (np.where(nan, np.uint32(0), bits) + np.uint32(0x7FFF) + (upper & 1)) >> 16
    return np.where(nan, upper | 0x40, rounded).astype(np.uint16).reshape(values.shape)


def round_as_a_gpu_does() -> bool:
    """Have the interpreter of this process round to the nearest bfloat16.

    Returns:
        False if there is no interpreter, or one of another make.
    """
    with contextlib.suppress(ImportError, AttributeError):
        interpreter: Any = importlib.import_module("triton.runtime.interpreter")
        language: Any = importlib.import_module("triton.language")
        nearest = interpreter._ir.ROUNDING_MODE.RTNE
        builder = interpreter.InterpreterBuilder
        cast, convert = builder.cast_impl, builder.create_fp_to_fp

        def narrows(source: Any, kind: Any) -> bool:  # noqa: ANN401 - Triton's types
            return bool(source.dtype.scalar == language.float32 and kind.scalar == language.bfloat16)

        def cast_impl(self: Any, source: Any, kind: Any) -> Any:  # noqa: ANN401 - Triton's types
            if not narrows(source, kind):
                return cast(self, source, kind)
            return interpreter.TensorHandle(bfloat16_bits(source.data), kind.scalar)

        def create_fp_to_fp(self: Any, source: Any, kind: Any, mode: Any) -> Any:  # noqa: ANN401 - Triton's types
            if mode == nearest and narrows(source, kind):
                return cast_impl(self, source, kind)
            return convert(self, source, kind, mode)

        builder.cast_impl, builder.create_fp_to_fp = cast_impl, create_fp_to_fp
        return True
    return False
