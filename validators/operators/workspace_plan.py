"""Workspace: blocks with lifetimes placed in one memory, so that no two that live together share a byte."""

import random
from dataclasses import replace

from kb.validators.operators.allocation import (
    Allocation,
    Block,
    BlockTrace,
    Form,
    by_weight,
    drawn_around,
    log_uniform,
)
from kb.validators.operators.spec import Axes, Workload
from kb.validators.operators.steps import Recorder, decoder_step, image_encoder

_KIB = 1 << 10


def decode_step(axes: Axes, dice: random.Random) -> BlockTrace:
    """Decode step of Qwen3.6-35B-A3B at about ``num_tokens`` sequences: short chains between norms, large logits."""
    record = Recorder()
    tokens = drawn_around(axes["num_tokens"], dice)
    decoder_step(record, tokens=tokens, layers=axes["layers"], sampled=tokens)
    return BlockTrace(record.blocks())


def prefill_chunk(axes: Axes, dice: random.Random) -> BlockTrace:
    """Prefill of about ``num_tokens`` tokens of the same model: chunk states of the delta rule dominate."""
    record = Recorder()
    tokens = drawn_around(axes["num_tokens"], dice)
    decoder_step(record, tokens=tokens, layers=axes["layers"], sampled=dice.randint(1, 4))
    return BlockTrace(record.blocks())


def encoder_step(axes: Axes, dice: random.Random) -> BlockTrace:
    """SAM 3.1 image encoder and neck: nine feature maps outlive everything around them."""
    record = Recorder()
    image_encoder(record, images=dice.randint(1, axes["images"]), layers=axes["layers"])
    return BlockTrace(record.blocks())


def growing_prompts(axes: Axes, dice: random.Random) -> BlockTrace:
    """Prefills one after another, most of them longer than any before, with decode steps between, and blocks that stay.

    What stays is taken in the middle of a step, where it splits what is free for good.
    """
    record = Recorder()
    stay: list[Block] = []
    tokens = axes["num_tokens"]
    for _ in range(axes["requests"]):
        tokens = max(1, round(tokens * dice.uniform(0.9, 1.4)))
        begun = record.now
        decoder_step(record, tokens=tokens, layers=axes["layers"], sampled=1)
        for _ in range(2):
            size = log_uniform(_KIB, 512 * _KIB, dice)
            stay.append(Block(size, dice.randrange(begun, record.now), record.now + dice.randint(0, 400)))
        decoder_step(record, tokens=dice.randint(1, 8), layers=1, sampled=dice.randint(1, 8))
    return BlockTrace((*record.blocks(), *stay))


def random_sizes(axes: Axes, dice: random.Random) -> BlockTrace:
    """Sizes over four decades around ``mean_kib``, lifetimes of ``least_life`` steps and more: nothing to rely on."""
    mean = axes["mean_kib"] * _KIB
    blocks = []
    for step in range(axes["blocks"]):
        size = log_uniform(max(1, mean // 64), mean * 4, dice) if dice.random() < 0.8 else dice.randint(1, 4096)
        first = step // by_weight(((1, 3.0), (2, 1.0)), dice)
        blocks.append(Block(size, first, first + log_uniform(axes["least_life"], axes["blocks"] // 2, dice)))
    return BlockTrace(tuple(blocks))


def nested(axes: Axes, dice: random.Random) -> BlockTrace:
    """Lifetimes that nest as calls do: whatever is taken later is given back earlier."""
    blocks: list[Block] = []
    held: list[Block] = []
    for now in range(axes["blocks"] * 2):
        if held and (len(held) > 12 or dice.random() < 0.5):
            blocks.append(replace(held.pop(), last=now))
        else:
            held.append(Block(log_uniform(256, 256 * _KIB, dice), now, now))
    blocks += [replace(one, last=axes["blocks"] * 2 + place) for place, one in enumerate(reversed(held))]
    return BlockTrace(tuple(blocks))


def staging(axes: Axes, dice: random.Random) -> BlockTrace:
    """Chunks of host-to-device copies, a few a step, done after two or three steps, in the order they came."""
    blocks = []
    for step in range(axes["steps"]):
        done = 4 * step + 8 + dice.randint(0, 3)
        blocks += [
            Block(log_uniform(64, 64 * _KIB, dice), 4 * step, done) for _ in range(dice.randint(1, axes["chunks"]))
        ]
    latest = 0
    ordered = []
    for block in blocks:
        latest = max(latest, block.last)
        ordered.append(replace(block, last=latest))
    return BlockTrace(tuple(ordered), in_order=True)


def two_streams(axes: Axes, dice: random.Random) -> BlockTrace:
    """Blocks on two streams that seldom wait for each other, some of them handed from one to the other."""
    blocks: list[Block] = []
    waits: list[tuple[int, int, int]] = []
    step = 0
    while len(blocks) < axes["blocks"]:
        for _ in range(dice.randint(3, 9)):
            stream = dice.randrange(axes["streams"])
            blocks.append(Block(log_uniform(512, 512 * _KIB, dice), step, step + dice.randint(0, 3), stream, stream))
            step += 1
        giver, taker = dice.sample(range(axes["streams"]), 2)
        # Handed over: written on one stream, read on the other after it has waited, and freed there.
        blocks.append(Block(log_uniform(512, 512 * _KIB, dice), step, step + 2, giver, taker))
        waits.append((step + 1, taker, giver))
        step += 3
    return BlockTrace(tuple(blocks), tuple(waits))


_OFFLINE = """\
def run(sizes: Sequence[int], first_use: Sequence[int], last_use: Sequence[int], alignment: int)
    -> tuple[Sequence[int], int]: byte offset of each block, and bytes of the arena; sees the whole trace; lifetimes are
    closed: blocks that share a step must not share a byte"""

_ONLINE = """\
class Allocator(capacity_bytes: int, alignment: int): alloc(size: int, stream: int) -> int (byte offset; MemoryError if
    there is no room, and nothing is taken), free(offset: int, stream: int) -> None (last used on that stream),
    wait(stream: int, on: int) -> None (optional: from here on, ``stream`` comes after what ``on`` was given so far);
    a block may be reused at once on the stream that freed it, on another one only after a wait"""

_OWN = """\
class DeviceAllocator(device: str, limit_bytes: int, alignment: int): as Allocator, with memory of its own:
    alloc(size, stream) -> torch.Tensor (uint8, one axis, contiguous, at least size bytes, on that device),
    free(tensor, stream), reserved_bytes() -> int (all it holds on the device now)"""

SPEC = Allocation(
    name="workspace_plan",
    summary="place blocks with lifetimes in one memory; blocks that live together never share a byte",
    forms=(Form("run", _OFFLINE), Form("Allocator", _ONLINE), Form("DeviceAllocator", _OWN)),
    axes=(
        "num_tokens",
        "layers",
        "images",
        "requests",
        "blocks",
        "mean_kib",
        "least_life",
        "steps",
        "chunks",
        "streams",
    ),
    laws={
        "decode_step": decode_step,
        "prefill_chunk": prefill_chunk,
        "encoder_step": encoder_step,
        "growing_prompts": growing_prompts,
        "random_sizes": random_sizes,
        "nested": nested,
        "staging": staging,
        "two_streams": two_streams,
    },
    workloads=(
        Workload({"num_tokens": 24, "layers": 4}, "uint8", "decode_step"),
        Workload({"num_tokens": 300, "layers": 4}, "uint8", "prefill_chunk"),
        Workload({"images": 2, "layers": 3}, "uint8", "encoder_step"),
        Workload({"num_tokens": 100, "requests": 4, "layers": 1}, "uint8", "growing_prompts"),
        Workload({"blocks": 120, "mean_kib": 64, "least_life": 1}, "uint8", "random_sizes"),
        Workload(
            {"blocks": 40, "mean_kib": 12288, "least_life": 6},
            "uint8",
            "random_sizes",
            note="large enough to be seen from outside",
        ),
        Workload({"blocks": 80}, "uint8", "nested"),
        Workload({"steps": 30, "chunks": 4}, "uint8", "staging"),
        Workload({"blocks": 90, "streams": 2}, "uint8", "two_streams"),
        Workload({"num_tokens": 256, "layers": 40}, "uint8", "decode_step", "target", "Qwen3.6 decode"),
        Workload({"num_tokens": 8192, "layers": 8}, "uint8", "prefill_chunk", "target", "Qwen3.6 prefill"),
        Workload({"images": 4, "layers": 32}, "uint8", "encoder_step", "target", "SAM 3.1 image encoder"),
        Workload({"num_tokens": 1024, "requests": 8, "layers": 4}, "uint8", "growing_prompts", "target", "Qwen3.6"),
        Workload({"blocks": 400, "mean_kib": 16384, "least_life": 8}, "uint8", "random_sizes", "target"),
        Workload({"steps": 200, "chunks": 5}, "uint8", "staging", "target"),
        Workload({"blocks": 400, "streams": 3}, "uint8", "two_streams", "target"),
    ),
    metrics={
        "live_bytes": "most bytes alive at once, rounded to the alignment: the lower bound",
        "peak_bytes": "bytes of memory that were handed out at any time (offline: the arena)",
        "fragmentation": "peak_bytes / live_bytes; 1 is perfect",
        "outside_bytes": "growth of the device's used memory seen from outside, where blocks are real memory",
        "host_bytes": "growth of the worker's host memory seen from outside",
        "us_per_operation": "judge's clock over a batch of operations, divided by their number",
    },
    baselines=("no_reuse", "best_fit", "caching_allocator"),
    source="shapes: the model configurations of Qwen3.6-35B-A3B and SAM 3.1",
)
