"""RMSNorm of short rows, two a warp; the weight comes in the layout of x, the next kernel may take its places early."""

import torch
import triton
import triton.language as tl


@triton.jit
def _rmsnorm_short(
    x_ptr, weight_ptr, y_ptr, stride_x, num_rows, hidden_size, eps,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    inside = (rows < num_rows)[:, None] & (cols < hidden_size)[None, :]
    source = x_ptr + rows.to(tl.int64)[:, None] * stride_x + cols[None, :]
    if EARLY:
        # Nothing is touched before the kernel ahead is complete; from then on the next one may take free places.
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    x = tl.load(source, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
    # A tile of equal rows: each lane finds its own columns in L1, where a vector of the weight would have to change its
    # layout through shared memory, behind a barrier.
    weight = tl.load(
        weight_ptr + (0 * rows)[:, None] + cols[None, :], mask=inside, other=0.0, eviction_policy="evict_last"
    )
    rstd = tl.rsqrt(tl.sum(x * x, axis=1) / hidden_size + eps)
    y = x * rstd[:, None] * weight.to(tl.float32)
    target = y_ptr + rows.to(tl.int64)[:, None] * hidden_size + cols[None, :]
    tl.store(target, y.to(y_ptr.dtype.element_ty), mask=inside)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Normalise the rows of x [num_tokens, hidden_size <= 1024]; weight [hidden_size]; returns a new tensor like x."""
    num_rows, hidden_size = x.shape
    y = torch.empty((num_rows, hidden_size), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x, weight = x if x.stride(1) == 1 else x.contiguous(), weight.contiguous()
    block = triton.next_power_of_2(hidden_size)
    # 2048 elements a CTA when rows abound; fewer while the grid would not fill about 4 x 132 slots.
    rows = min(max(1, 2048 // block), triton.next_power_of_2(max(1, num_rows // 528)))
    warps = min(4, max(1, rows * block // 512))
    early = x.is_cuda and torch.cuda.get_device_capability(x.device)[0] >= 9
    _rmsnorm_short[(triton.cdiv(num_rows, rows),)](
        x, weight, y, x.stride(0), num_rows, hidden_size, eps, ROWS=rows, BLOCK=block, EARLY=early, num_warps=warps,
        **({"launch_pdl": True} if early else {}),
    )  # fmt: skip
    return y
