"""Axes of an operator from the sizes of the tensors that an operation was called with."""

import math
from collections.abc import Callable, Mapping, Sequence

from kb.importers.traces.profile import Operation

Dims = Sequence[tuple[int, ...]]
Axes = dict[str, int]


def _product(left: tuple[int, ...], right: tuple[int, ...], *, transposed: bool = False) -> Axes:
    n = right[0] if transposed else right[1]
    return {"m": math.prod(left[:-1]), "n": n, "k": left[-1]}


def _batched(dims: Dims) -> Axes:
    (batch, m, k), (_, _, n) = dims[0], dims[1]
    return {"batch": batch, "m": m, "n": n, "k": k}


def _attention(dims: Dims) -> Axes:
    (batch, heads, queries, width), (_, shared, keys, _) = dims[0], dims[1]
    return {
        "batch_size": batch, "q_len": queries, "kv_len": keys, "num_heads": heads, "num_kv_heads": shared,
        "head_dim": width,
    }  # fmt: skip


def _rows(dims: Dims) -> Axes:
    return {"num_tokens": math.prod(dims[0][:-1]), "hidden_size": dims[0][-1]}


def _classes(dims: Dims) -> Axes:
    return {"num_tokens": math.prod(dims[0][:-1]), "num_classes": dims[0][-1]}


def _convolution(dims: Dims) -> Axes:
    (batch, channels, height, width), (out, _, kernel, _) = dims[0], dims[1]
    return {
        "batch": batch, "in_channels": channels, "height": height, "width": width, "out_channels": out,
        "kernel_size": kernel,
    }  # fmt: skip


def _groups(dims: Dims) -> Axes:
    batch, channels, height, width = dims[0]
    return {"batch_size": batch, "num_channels": channels, "height": height, "width": width}


_LINEAR = frozenset({"gemm", "gemm_fp8", "gemm_fp8_block", "gemm_nvfp4", "gemm_mxfp4"})
_NORMS = frozenset({"layernorm", "rmsnorm"})
_ATTENTION = frozenset({"attention_prefill"})
_BATCHED = frozenset({"batched_gemm"})
_CONVOLUTION = frozenset({"conv2d"})

_KNOWN: Mapping[str, tuple[Callable[[Dims], Axes], frozenset[str]]] = {
    "aten::mm": (lambda dims: _product(dims[0], dims[1]), _LINEAR),
    "aten::matmul": (lambda dims: _product(dims[0], dims[1]), _LINEAR),
    "aten::_scaled_mm": (lambda dims: _product(dims[0], dims[1]), _LINEAR),
    "aten::addmm": (lambda dims: _product(dims[1], dims[2]), _LINEAR),
    "aten::linear": (lambda dims: _product(dims[0], dims[1], transposed=True), _LINEAR),
    "mkldnn::_linear_pointwise": (lambda dims: _product(dims[0], dims[1], transposed=True), _LINEAR),
    "aten::bmm": (_batched, _BATCHED),
    "aten::baddbmm": (lambda dims: _batched(dims[1:]), _BATCHED),
    "aten::scaled_dot_product_attention": (_attention, _ATTENTION),
    "aten::_scaled_dot_product_flash_attention": (_attention, _ATTENTION),
    "aten::_scaled_dot_product_flash_attention_for_cpu": (_attention, _ATTENTION),
    "aten::_scaled_dot_product_efficient_attention": (_attention, _ATTENTION),
    "aten::_scaled_dot_product_cudnn_attention": (_attention, _ATTENTION),
    "aten::native_layer_norm": (_rows, _NORMS),
    "aten::layer_norm": (_rows, _NORMS),
    "aten::_fused_rms_norm": (_rows, _NORMS),
    "aten::rms_norm": (_rows, _NORMS),
    "aten::gelu": (_rows, frozenset({"gelu"})),
    "aten::silu": (_rows, frozenset({"silu"})),
    "aten::_softmax": (_classes, frozenset({"softmax"})),
    "aten::convolution": (_convolution, _CONVOLUTION),
    "aten::_convolution": (_convolution, _CONVOLUTION),
    "aten::mkldnn_convolution": (_convolution, _CONVOLUTION),
    "aten::cudnn_convolution": (_convolution, _CONVOLUTION),
    "aten::native_group_norm": (_groups, frozenset({"groupnorm"})),
}
"""Operation to how its axes are read, and the operators whose axes these are."""
_DTYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16", "int": "int32",
    "long int": "int64", "long": "int64", "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2",
}  # fmt: skip


def axes_of(operator: str, operation: Operation | None) -> Axes:
    """Return the axes of a call; empty where they are not known or belong to another operator.

    Args:
        operator: What the kernel was reconciled with.
        operation: What launched it.
    """
    if operation is None or operation.name not in _KNOWN:
        return {}
    reading, operators = _KNOWN[operation.name]
    if operator not in operators:
        return {}
    try:
        axes = reading(operation.dims)
    except (ValueError, IndexError):
        return {}
    return axes if all(0 <= size < 1 << 50 for size in axes.values()) else {}


def dtype_of(operation: Operation | None) -> str | None:
    """Return the dtype of the first tensor of floating point that a call got, else of the first one, else None."""
    if operation is None:
        return None
    found = [_DTYPES[one] for one in operation.dtypes if one in _DTYPES]
    return next((one for one in found if "float" in one), found[0] if found else None)
