"""L2 normalisation per head: a CTA keeps its heads and walks down the tokens, one token ahead."""

import torch
import triton
import triton.language as tl


@triton.jit
def _heads(x_ptr, token, head, cols, x_token, x_head, num_tokens, HEADS: tl.constexpr, DIM: tl.constexpr):
    inside = (head < tl.where(token < num_tokens, HEADS, 0))[:, None] & (cols < DIM)[None, :]
    source = x_ptr + token.to(tl.int64) * x_token + head.to(tl.int64)[:, None] * x_head + cols[None, :]
    return tl.load(source, mask=inside, other=0.0)


@triton.jit(do_not_specialize=["num_tokens"])
def _l2norm_walk(
    x_ptr, y_ptr, x_token, x_head, num_tokens, eps,
    HEADS: tl.constexpr, DIM: tl.constexpr, HEAD_BLOCK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0)
    step = tl.num_programs(0)
    head = tl.program_id(1) * HEAD_BLOCK + tl.arange(0, HEAD_BLOCK)
    cols = tl.arange(0, BLOCK)
    kept = (head < HEADS)[:, None] & (cols < DIM)[None, :]
    held = _heads(x_ptr, token, head, cols, x_token, x_head, num_tokens, HEADS, DIM)
    for _ in range(tl.program_id(0), num_tokens, step):
        # The next token is asked for before this one is reduced; behind the last token the load is masked off.
        ahead = _heads(x_ptr, token + step, head, cols, x_token, x_head, num_tokens, HEADS, DIM)
        x = held.to(tl.float32)
        y = x * (1.0 / tl.sqrt(tl.sum(x * x, axis=1) + eps))[:, None]
        target = y_ptr + token.to(tl.int64) * (HEADS * DIM) + head[:, None] * DIM + cols[None, :]
        tl.store(target, y.to(y_ptr.dtype.element_ty), mask=kept)
        held, token = ahead, token + step


def run(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Return x / sqrt(sum(x^2) + eps) over the last axis, new and contiguous.

    x [num_tokens, num_heads, head_dim <= 1024] with any token and head strides.
    """
    num_tokens, num_heads, head_dim = x.shape
    y = torch.empty((num_tokens, num_heads, head_dim), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x = x if x.stride(2) == 1 else x.contiguous()
    block, all_heads = triton.next_power_of_2(head_dim), triton.next_power_of_2(num_heads)
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 1
    # Up to 2048 elements of a token a CTA, 16 a lane; fewer, down to 512, while that leaves less than three CTAs an SM.
    heads = min(all_heads, max(1, 2048 // block))
    while heads * block > 512 and num_tokens * triton.cdiv(num_heads, heads) < 3 * sms:
        heads = max(1, heads // 2)
    groups = triton.cdiv(num_heads, heads)
    turns = triton.cdiv(num_tokens * groups, 8 * sms)
    _l2norm_walk[(triton.cdiv(num_tokens, turns), groups)](
        x, y, x.stride(0), x.stride(1), num_tokens, eps,
        HEADS=num_heads, DIM=head_dim, HEAD_BLOCK=heads, BLOCK=block, num_warps=min(4, max(1, heads * block // 256)),
    )  # fmt: skip
    return y
