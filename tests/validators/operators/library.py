"""The strongest formulation of an operator that torch itself has: honest work, written by others."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as f

Made = torch.Tensor | tuple[torch.Tensor, ...]


def _gelu(x: torch.Tensor, tanh: int = 0) -> torch.Tensor:
    return f.gelu(x, approximate="tanh" if tanh else "none")


def _swiglu(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.float().chunk(2, dim=-1)
    return (f.silu(gate) * up).to(x.dtype)


def _fused_add_rmsnorm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> Made:
    total = x + residual
    return f.rms_norm(total, (total.shape[-1],), weight, eps), total


def _gated_rmsnorm(x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    normalised = f.rms_norm(x.float(), (x.shape[-1],), weight.float(), eps)
    return (normalised * f.silu(gate.float())).to(x.dtype)


def _layernorm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return f.layer_norm(x, (x.shape[-1],), weight, bias, eps)


def _groupnorm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, groups: int, eps: float) -> torch.Tensor:
    return torch.group_norm(x, groups, weight, bias, eps)


def _mlp(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, tanh: int = 0) -> torch.Tensor:
    z = torch.addmm(bias.float(), x.float(), weight.float().T)
    return f.gelu(z, approximate="tanh" if tanh else "none").to(x.dtype)


def _grouped(x: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    parts = torch.split(x, offsets.diff().tolist())
    return torch.cat([part @ weight[expert].T for expert, part in enumerate(parts)])


def _planar(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 3, 1, 2)


def _last(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 2, 3, 1).contiguous()


def _conv2d(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int, padding: int) -> torch.Tensor:
    return _last(f.conv2d(_planar(x), _planar(weight), bias, stride, padding))


def _transposed(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int) -> torch.Tensor:
    # In bfloat16 the library's own sums on a CPU are too short for the contract.
    made = f.conv_transpose2d(_planar(x).float(), _planar(weight).float(), bias.float(), stride)
    return _last(made).to(x.dtype)


def _depthwise(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    taps = weight.permute(2, 0, 1)[:, None]
    return _last(f.conv2d(_planar(x), taps, bias, padding=weight.shape[0] // 2, groups=x.shape[3]))


def _pool(x: torch.Tensor, kernel_size: int, stride: int) -> torch.Tensor:
    return _last(f.max_pool2d(_planar(x), kernel_size, stride))


def _patches(images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return f.conv2d(images, weight, stride=weight.shape[-1]).flatten(2).transpose(1, 2).contiguous()


def _resize(x: torch.Tensor, height: int, width: int) -> torch.Tensor:
    return f.interpolate(x.float(), (height, width), mode="bilinear").to(x.dtype)


def _append(k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, slot: torch.Tensor) -> Made:
    made = []
    for new, cache in ((k, k_cache), (v, v_cache)):
        out = cache.clone()
        rows, kept = out.view(-1, *cache.shape[2:]).view(torch.uint8), slot >= 0
        rows[slot[kept]] = new.contiguous().view(torch.uint8)[kept]
        made.append(out)
    return tuple(made)


CALLS: Mapping[str, Callable[..., Any]] = {
    "conv2d": _conv2d,
    "conv_transpose2d": _transposed,
    "depthwise_conv2d": _depthwise,
    "fused_add_rmsnorm": _fused_add_rmsnorm,
    "gated_rmsnorm": _gated_rmsnorm,
    "gelu": _gelu,
    "gemm": torch.matmul,
    "gemm_bias_gelu": _mlp,
    "grouped_gemm": _grouped,
    "groupnorm": _groupnorm,
    "kv_append": _append,
    "layernorm": _layernorm,
    "mask_decode": torch.bmm,
    "max_pool2d": _pool,
    "patch_embed": _patches,
    "resize_bilinear": _resize,
    "rmsnorm": lambda x, weight, eps: f.rms_norm(x, (x.shape[-1],), weight, eps),
    "sigmoid_mul": lambda x, gate: (x.float() * gate.float().sigmoid()).to(x.dtype),
    "silu": f.silu,
    "silu_and_mul": _swiglu,
    "softmax": lambda x: torch.softmax(x, -1),
}
"""Operator to a function of its signature."""


def applies(name: str, axes: Mapping[str, int]) -> bool:
    """Tell whether torch offers the call at these axes."""
    return not (name == "conv2d" and axes["kernel_size"] == 0)
