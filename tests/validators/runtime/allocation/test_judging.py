"""Verdicts of the allocation judge: what is right is accepted with figures, every failure has its reason."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kb.validators import operators
from kb.validators.operators.spec import Workload
from kb.validators.runtime.allocation import baselines, drawing
from kb.validators.runtime.allocation.summing import summary
from kb.validators.runtime.errors import JudgeError
from kb.validators.runtime.judge import Options, judge
from kb.validators.runtime.report import REASONS, Report

FIRST_FIT = """
class Allocator:
    def __init__(self, capacity_bytes, alignment):
        self.capacity, self.alignment, self.used = capacity_bytes, alignment, {}

    def alloc(self, size, stream):
        padded, at = -(-size // self.alignment) * self.alignment, 0
        for start, length in sorted(self.used.items()):
            if start - at >= padded:
                break
            at = start + length
        if at + padded > self.capacity:
            %s
        self.used[at] = padded
        return at

    def free(self, offset, stream):
        %s
"""
RIGHT = FIRST_FIT % ("raise MemoryError(size)", "del self.used[offset]")
SMALL = Workload({"blocks": 100}, "uint8", "nested")
OPTIONS = Options(call_limit_s=10, workloads=[SMALL])


def judged(source: str, operator: str = "workspace_plan", options: Options = OPTIONS) -> Report:
    return judge(operator, source.encode(), options=options)


def test_a_right_strategy_is_accepted_and_its_figures_follow_from_its_traces() -> None:
    found = judged(RIGHT)
    assert (found.verdict, found.reasons, found.details) == ("accepted", (), ())
    assert found.memory is not None
    assert {one.contents for one in found.cases} == {"drawn", "permuted", "shifted", "tight"}
    for row in found.memory["traces"]:
        if "live_bytes" in row:
            assert row["peak_bytes"] >= row["live_bytes"]
            assert set(row["baselines"]) == {"no_reuse", "best_fit", "caching_allocator"}
            assert row["baselines"]["no_reuse"]["peak_bytes"] >= row["peak_bytes"]
    again = summary(found.memory["form"], found.memory["laws"], found.memory["traces"])
    assert json.loads(json.dumps(again)) == json.loads(json.dumps(dict(found.memory)))
    assert found.master_seed is not None
    spec = operators.load_allocation("workspace_plan")
    plan = drawing.draw(spec, "Allocator", [SMALL], master_seed=int(found.master_seed, 16), fitted=False)
    assert plan.sha256 == found.plan_sha256


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (FIRST_FIT % ("return 0", "self.used.pop(offset, None)"), "overlapping_blocks out_of_arena"),
        (FIRST_FIT % ("raise RuntimeError('full')", "del self.used[offset]"), "bad_out_of_memory"),
        (FIRST_FIT % ("self.used.clear(); raise MemoryError", "self.used.pop(offset, None)"), "overlapping_blocks"),
        (FIRST_FIT % ("self.capacity = 0; raise MemoryError", "del self.used[offset]"), "bad_out_of_memory"),
        (FIRST_FIT % ("return at", "del self.used[offset]"), "out_of_arena"),
        (RIGHT.replace("return at", "return at + 1"), "misaligned"),
        (RIGHT.replace("return at", "return str(at)"), "wrong_answer"),
        (RIGHT.replace("if at + padded", "if self.used or at + padded"), "refused_early"),
        (RIGHT.replace("self.used[at] = padded", "import time; time.sleep(60)"), "timed_out"),
        (RIGHT.replace("self.used[at] = padded", "import os; os._exit(3)"), "crashed"),
        (RIGHT.replace("del self.used[offset]", "raise KeyError(offset)"), "crashed"),
        ("def run(sizes, first_use, last_use, alignment):\n    return [0] * len(sizes), 1 << 40", "out_of_arena"),
        ("def run(sizes, first_use, last_use, alignment):\n    return [0], 4096", "wrong_answer"),
        ("def run(sizes, first_use, last_use, alignment):\n    return sizes", "wrong_answer"),
        ("LAWS = ('nested', 'unheard_of')\n" + RIGHT, "wrong_answer"),
        ("class Pool:\n    pass", "build_failed"),
        ("class Allocator(", "build_failed"),
    ],
)  # fmt: skip
def test_a_failure_is_a_verdict_with_its_reason(source: str, reason: str) -> None:
    found = judged(source, options=replace(OPTIONS, call_limit_s=3))
    assert found.verdict == "rejected"
    assert set(reason.split()) & set(found.reasons), found.details
    assert set(found.reasons) <= set(REASONS)


def test_who_works_less_in_a_batch_is_found_by_what_it_hands_out() -> None:
    # Without the judge's messages between the calls, it believes that it is only timed.
    lazy = RIGHT.replace(
        "padded, at =",
        "if __import__('time').monotonic() - self.last < 2e-5:\n            return 0\n        padded, at =",
    )
    lazy = lazy.replace(
        "self.used = capacity_bytes, alignment, {}", "self.used = capacity_bytes, alignment, {}\n        self.last = 0"
    )
    lazy = lazy.replace(
        "self.used[at] = padded", "self.used[at] = padded\n        self.last = __import__('time').monotonic()"
    )
    found = judged(lazy.replace("del self.used[offset]", "self.used.pop(offset, None)"))
    assert found.verdict == "rejected"
    assert "overlapping_blocks" in found.reasons


def test_memory_of_its_own_is_held_against_what_is_seen_from_outside() -> None:
    own = """
import torch


class DeviceAllocator:
    def __init__(self, device, limit_bytes, alignment):
        self.device, self.alignment, self.held, self.limit = device, alignment, 0, limit_bytes

    def alloc(self, size, stream):
        if self.held + size + self.alignment > self.limit:
            raise MemoryError(size)
        self.held += size + self.alignment
        whole = torch.empty(size + self.alignment, dtype=torch.uint8)
        skip = -whole.data_ptr() % self.alignment
        return whole[skip : skip + size]

    def free(self, block, stream):
        self.held -= block.numel() + self.alignment

    def reserved_bytes(self):
        return self.held
"""
    large = Workload({"blocks": 30, "mean_kib": 12288, "least_life": 6}, "uint8", "random_sizes")
    options = Options(call_limit_s=20, workloads=[large])
    found = judged(own, options=options)
    assert (found.verdict, found.details) == ("accepted", ())
    assert found.memory is not None
    drawn = [row for row in found.memory["traces"] if row["contents"] == "drawn"]
    assert all(abs(row["outside_bytes"] - row["peak_bytes"]) < (24 << 20) + 0.05 * row["peak_bytes"] for row in drawn)
    shared = own.replace("torch.empty(size + self.alignment, dtype=torch.uint8)", "SHARED[: size + self.alignment]")
    shared = "import torch\nSHARED = torch.empty(1 << 28, dtype=torch.uint8)\n" + shared
    assert "overlapping_blocks" in judged(shared, options=options).reasons


@pytest.mark.parametrize("operator", operators.ALLOCATION)
def test_every_baseline_is_there_and_within_its_contract(operator: str) -> None:
    spec = operators.load_allocation(operator)
    for name in spec.baselines:
        assert {form.name for form in spec.forms} & set(vars(baselines.load(operator, name)))
        text = baselines.source(operator, name).decode()
        assert text.startswith('"""')
    folder = Path(baselines.__file__).parents[2] / "baselines" / operator
    assert sorted(file.stem for file in folder.glob("*.py")) == sorted(spec.baselines)


def test_a_baseline_as_a_candidate_is_judged_as_any_other() -> None:
    source = baselines.source("kv_block_pool", "longest_sequence").decode()
    short = Workload({"requests": 6, "token_bytes": 160, "capacity_tokens": 800}, "uint8", "parallel_samples")
    found = judged(source, "kv_block_pool", Options(call_limit_s=10, workloads=[short]))
    assert found.verdict == "accepted", found.details


def test_without_a_workload_that_is_served_nothing_is_judged() -> None:
    with pytest.raises(JudgeError, match="no workload"):
        judged("LAWS = ('staging',)\n" + RIGHT)
