"""Rows of a table by id: one token's row is cut into chunks, a CTA each."""

import torch
import triton
import triton.language as tl


@triton.jit
def _row_chunk(ids_ptr, table_ptr, y_ptr, stride_row, hidden, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(ids_ptr + token).to(tl.int64)
    # Padding has no columns to read: nothing is loaded at a negative offset, and the row comes out as zeros.
    there = column < tl.where(row >= 0, hidden, 0)
    found = tl.load(table_ptr + row * stride_row + column, mask=there, other=0)
    tl.store(y_ptr + token * hidden + column, found, mask=column < hidden)


def run(token_ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the rows of the table that the ids name.

    Args:
        token_ids: int64 [num_tokens], -1 for a row of zeros.
        weight: [vocab_size, hidden_size], last axis contiguous.

    Returns:
        [num_tokens, hidden_size], bit for bit.
    """
    tokens, hidden = token_ids.shape[0], weight.shape[1]
    y = torch.empty((tokens, hidden), dtype=weight.dtype, device=weight.device)
    if y.numel() == 0:
        return y
    # Moved as integers: a copy needs no arithmetic, and NaN keep their bits.
    word = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[weight.element_size()]
    lane = 16 // weight.element_size()
    # A lane moves 16 bytes; few tokens are spread over more CTAs of one warp.
    block = 32 * lane if tokens < 512 else 128 * lane
    _row_chunk[(tokens, triton.cdiv(hidden, block))](
        token_ids.contiguous(), weight.view(word), y.view(word), weight.stride(0), hidden, BLOCK=block,
        num_warps=1 if tokens < 512 else 4,
    )  # fmt: skip
    return y
