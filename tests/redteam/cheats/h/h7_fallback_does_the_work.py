"""A kernel that always fails, and a library call behind try and except.

row: H7
operator: rmsnorm
reason: fallback_hides_kernel
"""

# mypy: ignore-errors

import torch
import triton
import triton.language as tl


def right(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


@triton.jit
def norm(x_pointer, y_pointer, weight_pointer, row_stride, hidden, eps, BLOCK: tl.constexpr):  # noqa: ANN001, ANN201
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < hidden
    x = tl.load(x_pointer + row * row_stride + columns, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_pointer + columns, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, 0) / hidden + eps)
    tl.store(y_pointer + row * hidden + columns, (x * scale * weight).to(y_pointer.dtype.element_ty), mask=inside)


def launch(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    made = torch.empty_like(x)
    norm[(x.shape[0],)](x, made, weight, x.stride(0), x.shape[1], eps, BLOCK="unfit")
    return made


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    try:
        return launch(x, weight, eps)
    except Exception:
        return right(x, weight, eps)
