"""One kernel sums blocks, another one chooses a block by the sums: in a narrow row there is nothing to choose.

operator: sample_categorical
"""

# mypy: ignore-errors

import torch
import triton
import triton.language as tl


@triton.jit
def add_up(probs_pointer, sums_pointer, row_stride, vocab, BLOCK: tl.constexpr):  # noqa: ANN001, ANN201
    row, block = tl.program_id(0), tl.program_id(1)
    columns = block * BLOCK + tl.arange(0, BLOCK)
    probs = tl.load(probs_pointer + row * row_stride + columns, mask=columns < vocab, other=0.0)
    tl.store(sums_pointer + row * tl.num_programs(1) + block, tl.sum(probs.to(tl.float64), 0))


@triton.jit
def choose(probs_pointer, sums_pointer, u_pointer, y_pointer, row_stride, vocab, blocks, BLOCK: tl.constexpr):  # noqa: ANN001, ANN201
    row = tl.program_id(0)
    u = tl.load(u_pointer + row).to(tl.float64)
    before, here = u * 0.0, 0
    for block in range(blocks - 1):
        total = tl.load(sums_pointer + row * blocks + block)
        passed = (here == block) & (before + total <= u)
        before = tl.where(passed, before + total, before)
        here = tl.where(passed, block + 1, here)
    columns = here * BLOCK + tl.arange(0, BLOCK)
    probs = tl.load(probs_pointer + row * row_stride + columns, mask=columns < vocab, other=0.0).to(tl.float64)
    beyond = (before + tl.cumsum(probs, 0) > u) & (probs > 0)
    tl.store(y_pointer + row, tl.min(tl.where(beyond, columns, vocab), 0).to(tl.int64))


def run(probs: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    rows, vocab = probs.shape
    made = torch.empty(rows, dtype=torch.int64, device=probs.device)
    if rows:
        blocks = triton.cdiv(vocab, 512)
        sums = torch.empty(rows, blocks, dtype=torch.float64, device=probs.device)
        add_up[(rows, blocks)](probs, sums, probs.stride(0), vocab, BLOCK=512)
        choose[(rows,)](probs, sums, u, made, probs.stride(0), vocab, blocks, BLOCK=512)
    return made
