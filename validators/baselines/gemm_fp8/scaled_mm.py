"""torch._scaled_mm with one scale a tensor."""

import torch

_STEP = 16
"""The library takes sizes that are multiples of it; others are padded."""


def run(a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
    """Return (a @ b.T) * a_scale * b_scale in bfloat16; a [m, k] and b [n, k] float8_e4m3fn."""
    m, n, odd = a.shape[0], b.shape[0], -a.shape[1] % _STEP
    if odd or n % _STEP or not m:
        a, b = _padded(a, rows=max(m, 1)), _padded(b, rows=n + -n % _STEP)
    y = torch._scaled_mm(a, b.T, scale_a=a_scale, scale_b=b_scale, out_dtype=torch.bfloat16, use_fast_accum=False)
    return y[:m, :n].contiguous()


def _padded(x: torch.Tensor, *, rows: int) -> torch.Tensor:
    made = torch.zeros(rows, x.shape[1] + -x.shape[1] % _STEP, dtype=torch.uint8, device=x.device)
    made[: x.shape[0], : x.shape[1]] = x.view(torch.uint8)
    return made.view(x.dtype)
