"""Replay the plan of a recorded step: right offsets for the trace that was published.

row: K4
operator: workspace_plan
reason: overlapping_blocks, out_of_arena, wrong_answer
"""

# mypy: ignore-errors

LAWS = ("decode_step", "prefill_chunk")

RECORDED = [0, 98304, 0, 196608, 786432, 589824, 983040, 0, 98304, 196608, 294912, 393216]


def run(sizes, first_use, last_use, alignment):
    offsets = [RECORDED[i % len(RECORDED)] // alignment * alignment for i in range(len(sizes))]
    return offsets, max(offset + size for offset, size in zip(offsets, sizes, strict=True))
