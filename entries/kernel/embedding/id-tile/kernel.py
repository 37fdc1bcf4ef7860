"""Rows of a table by id: a CTA loads several ids in one vector and moves all of their rows at once."""

import torch
import triton
import triton.language as tl

ROWS = 8
"""Tokens of a CTA: 64 bytes of ids, and eight independent rows in flight."""


@triton.jit
def _row_tile(ids_ptr, table_ptr, y_ptr, stride_row, tokens, hidden, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(ids_ptr + token, mask=token < tokens, other=-1)
    own = (column < hidden)[None, :]
    source = row[:, None] * stride_row + column[None, :]
    found = tl.load(table_ptr + source, mask=own & (row >= 0)[:, None], other=0)
    tl.store(y_ptr + token[:, None] * hidden + column[None, :], found, mask=own & (token < tokens)[:, None])


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
    word = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[weight.element_size()]
    # 1 KiB of each row: two warps' worth of 16-byte loads a row, eight rows over four warps.
    block = 1024 // weight.element_size()
    _row_tile[(triton.cdiv(hidden, block), triton.cdiv(tokens, ROWS))](
        token_ids.contiguous(), weight.view(word), y.view(word), weight.stride(0), tokens, hidden,
        ROWS=ROWS, BLOCK=block, num_warps=4,
    )  # fmt: skip
    return y
