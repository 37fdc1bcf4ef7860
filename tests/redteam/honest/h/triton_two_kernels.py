"""One kernel makes the mean squares zero, another one adds to them, a third one scales.

operator: rmsnorm
"""

# mypy: ignore-errors

import torch
import triton
import triton.language as tl


@triton.jit
def clear(total_pointer):  # noqa: ANN001, ANN201
    tl.store(total_pointer + tl.program_id(0), 0.0)


@triton.jit
def add(x_pointer, total_pointer, row_stride, hidden, BLOCK: tl.constexpr):  # noqa: ANN001, ANN201
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_pointer + row * row_stride + columns, mask=columns < hidden, other=0.0).to(tl.float32)
    tl.atomic_add(total_pointer + row, tl.sum(x * x, 0))


@triton.jit
def scale(x_pointer, y_pointer, weight_pointer, total_pointer, row_stride, hidden, eps, BLOCK: tl.constexpr):  # noqa: ANN001, ANN201
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < hidden
    x = tl.load(x_pointer + row * row_stride + columns, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_pointer + columns, mask=inside, other=0.0).to(tl.float32)
    factor = 1.0 / tl.sqrt(tl.load(total_pointer + row) / hidden + eps)
    tl.store(y_pointer + row * hidden + columns, (x * factor * weight).to(y_pointer.dtype.element_ty), mask=inside)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    rows, hidden = x.shape
    made = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        total = torch.empty(rows, dtype=torch.float32)
        clear[(rows,)](total)
        add[(rows, triton.cdiv(hidden, 1024))](x, total, x.stride(0), hidden, BLOCK=1024)
        block = triton.next_power_of_2(hidden)
        scale[(rows,)](x, made, weight, total, x.stride(0), hidden, eps, BLOCK=block)
    return made
