"""KV blocks: the pages of many sequences, and recurrent-state slots beside them, in one memory."""

import random

from kb.validators.operators.allocation import (
    KEY_TOKENS,
    Allocation,
    Form,
    Request,
    ServingTrace,
    by_weight,
    log_uniform,
)
from kb.validators.operators.spec import Axes, Workload


def _trace(axes: Axes, requests: list[Request], *, slots: bool = False) -> ServingTrace:
    slot_bytes = axes["slot_tokens"] * axes["token_bytes"] if slots else 0
    longest = max(one.prompt + one.output for one in requests)
    return ServingTrace(
        tuple(requests),
        capacity_bytes=axes["capacity_tokens"] * axes["token_bytes"],
        token_bytes=axes["token_bytes"],
        slot_bytes=slot_bytes,
        max_tokens=max(longest, axes["capacity_tokens"] // 4),
    )


def _arrivals(axes: Axes, dice: random.Random) -> list[int]:
    return sorted(int(dice.uniform(0, axes["requests"] / 2)) for _ in range(axes["requests"]))


def chat(axes: Axes, dice: random.Random) -> ServingTrace:
    """Short prompts and short answers of lengths over two decades, many at once."""
    requests = [Request(at, log_uniform(3, 300, dice), log_uniform(2, 60, dice)) for at in _arrivals(axes, dice)]
    return _trace(axes, requests)


def documents(axes: Axes, dice: random.Random) -> ServingTrace:
    """Mostly short prompts, and now and then one that takes an eighth of all memory."""
    long = axes["capacity_tokens"] // 8
    requests = []
    for at in _arrivals(axes, dice):
        prompt = dice.randint(long // 2, long) if dice.random() < 0.25 else log_uniform(3, 200, dice)
        requests.append(Request(at, prompt, log_uniform(2, 60, dice)))
    return _trace(axes, requests)


def hybrid(axes: Axes, dice: random.Random) -> ServingTrace:
    """A model with recurrent state: each sequence needs a slot; half the trace short prompts, half long ones."""
    requests = []
    for number, at in enumerate(_arrivals(axes, dice)):
        short = number < axes["requests"] // 2
        prompt = log_uniform(3, 60, dice) if short else dice.randint(100, axes["capacity_tokens"] // 10)
        requests.append(Request(at, prompt, log_uniform(2, 60, dice)))
    return _trace(axes, requests, slots=True)


def shared_prefix(axes: Axes, dice: random.Random) -> ServingTrace:
    """Requests that begin with one of a few long system prompts, some of them whole conversations that come again."""
    heads = [tuple(dice.getrandbits(40) for _ in range(dice.randint(8, 30))) for _ in range(4)]
    requests: list[Request] = []
    for at in _arrivals(axes, dice):
        keys = heads[by_weight(((0, 4.0), (1, 2.0), (2, 1.0), (3, 1.0)), dice)]
        if requests and dice.random() < 0.2:
            keys = dice.choice(requests).keys
        keys = (*keys[: dice.randint(1, len(keys))], *(dice.getrandbits(40) for _ in range(dice.randint(0, 6))))
        requests.append(
            Request(at, len(keys) * KEY_TOKENS + dice.randrange(KEY_TOKENS), log_uniform(2, 40, dice), keys)
        )
    return _trace(axes, requests)


def parallel_samples(axes: Axes, dice: random.Random) -> ServingTrace:
    """Requests of which two to four samples are drawn: copies that share the prompt and then go their own ways."""
    requests = [
        Request(at, log_uniform(5, 300, dice), log_uniform(2, 40, dice), forks=dice.choice((0, 1, 1, 2, 3)))
        for at in _arrivals(axes, dice)
    ]
    return _trace(axes, requests)


_POOL = """\
class Pool(capacity_bytes: int, token_bytes: int, slot_bytes: int, max_tokens: int): page_tokens: int (tokens a page
    holds, its own choice), admit(request: int, tokens: int, keys: tuple[int, ...]) -> int (leading tokens whose keys
    and values are already there; one key stands for 16 prompt tokens and all before them), append(request, tokens) and
    fork(parent, child) -> list of (source, target, size) in bytes, copies to make before anything is written,
    free(request), table(request) -> byte offset of each page in token order, slot(request) -> byte offset of the
    recurrent state or None; admit, append and fork raise MemoryError if there is no room, and then nothing is taken"""

SPEC = Allocation(
    name="kv_block_pool",
    summary="pages and state slots for growing, forking and ending sequences; no sequence ever reads another's tokens",
    forms=(Form("Pool", _POOL),),
    axes=("requests", "token_bytes", "slot_tokens", "capacity_tokens"),
    laws={
        "chat": chat,
        "documents": documents,
        "hybrid": hybrid,
        "shared_prefix": shared_prefix,
        "parallel_samples": parallel_samples,
    },
    workloads=(
        Workload({"requests": 30, "token_bytes": 160, "capacity_tokens": 1_000}, "uint8", "chat"),
        Workload({"requests": 24, "token_bytes": 160, "capacity_tokens": 1_400}, "uint8", "documents"),
        Workload(
            {"requests": 20, "token_bytes": 160, "slot_tokens": 629, "capacity_tokens": 8_200}, "uint8", "hybrid"
        ),
        Workload({"requests": 24, "token_bytes": 160, "capacity_tokens": 1_500}, "uint8", "shared_prefix"),
        Workload({"requests": 16, "token_bytes": 160, "capacity_tokens": 800}, "uint8", "parallel_samples"),
        Workload(
            {"requests": 200, "token_bytes": 10_240, "capacity_tokens": 4_000}, "uint8", "chat", "target",
            "Qwen3.6, fp8 keys and values",
        ),
        Workload(
            {"requests": 40, "token_bytes": 10_240, "capacity_tokens": 48_000}, "uint8", "documents", "target",
            "Qwen3.6",
        ),
        Workload(
            {"requests": 40, "token_bytes": 10_240, "slot_tokens": 6_288, "capacity_tokens": 200_000}, "uint8",
            "hybrid", "target", "Qwen3.6: a state of 64,389,120 bytes a sequence",
        ),
        Workload(
            {"requests": 100, "token_bytes": 10_240, "capacity_tokens": 6_000}, "uint8", "shared_prefix", "target",
            "Qwen3.6",
        ),
        Workload(
            {"requests": 60, "token_bytes": 10_240, "capacity_tokens": 3_000}, "uint8", "parallel_samples",
            "target", "Qwen3.6",
        ),
    ),
    metrics={
        "live_bytes": "distinct tokens and states alive at the moment of the peak, in bytes: the lower bound",
        "peak_bytes": "most bytes of pages and slots in use at once",
        "fragmentation": "peak_bytes / live_bytes at that moment",
        "full_at": "share of the capacity with distinct tokens and states when memory first ran out; None if never",
        "steps": "steps of the serving loop until all was served; fewer is better at equal capacity",
        "computed_tokens": "prompt tokens that had to be computed; the rest was found",
        "preemptions": "sequences that had to give way and start again",
        "host_bytes": "growth of the worker's host memory seen from outside",
        "us_per_operation": "judge's clock over the calls of the trace, divided by their number",
    },
    baselines=("longest_sequence",),
    source="sizes: 10,240 bytes of keys and values a token in fp8 and 61.4 MiB of state a sequence of Qwen3.6-35B-A3B",
)  # fmt: skip
