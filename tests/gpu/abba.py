"""How often the timing is right: a kernel against itself, and against one that takes five hundredths longer.

Independent sessions over the same processes: one baseline, one candidate with the same code, one with a longer loop. A
session is what ``kb`` runs for one workload in one regime: ABBA blocks on new contents, every output compared. Run from
the repository root:

    PYTHONPATH=. python tests/gpu/abba.py --device cuda:0 --sessions 100 --limit-s 330 --out abba.json
    PYTHONPATH=. python tests/gpu/abba.py --device cpu --sessions 3      # a rehearsal of the machinery
"""

import argparse
import itertools
import json
import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

from kb.validators import operators
from kb.validators.operators.spec import Workload
from kb.validators.runtime import accelerator, peaks, statistics
from kb.validators.runtime.floors import floor_of
from kb.validators.runtime.pairing import Regime, Session, Shape
from kb.validators.runtime.shaping import measure_pipe_us
from kb.validators.runtime.sides import Side
from kb.validators.runtime.telemetry import Telemetry
from kb.validators.runtime.workplace import Workplace

WORKLOAD = Workload({"num_tokens": 16, "hidden_size": 512}, "float32")
TARGET_US = 100.0
SLOWER = 1.05

KERNEL = """
import torch
import triton
import triton.language as tl

TURNS = {turns}

@triton.jit
def spin(x, y, total, turns, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + at, mask=at < total, other=0.0)
    left = value * 0.001
    for _ in range(turns):
        left = left * 0.999 + 0.001
    tl.store(y + at, value / (1.0 + tl.exp(-value)) + left * 0.0, mask=at < total)

def run(x):
    y = torch.empty_like(x)
    spin[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), TURNS, block=1024)
    return y
"""
"""SiLU with a loop whose length sets the time; its result is multiplied by zero, which no compiler may leave out."""

HOST = """
import torch

TURNS = {turns}

def run(x):
    left = x * 0.001
    for _ in range(TURNS):
        left = left * 0.999
    return torch.nn.functional.silu(x) + left * 0.0
"""


def source(device: str, turns: int) -> bytes:
    """Return the candidate whose loop makes so many turns."""
    return (HOST if device == accelerator.CPU else KERNEL).replace("{turns}", str(turns)).encode()


def clock_us(device: str, turns: int) -> float:
    """Return the time of one call on an idle device, by its own events; only to choose the length of the loop."""
    import importlib.util
    import tempfile

    import torch

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "candidate.py"
        file.write_bytes(source(device, turns))
        spec = importlib.util.spec_from_file_location("spinning", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        x = torch.randn(*WORKLOAD.axes.values(), device=device)
        for _ in range(50):
            module.run(x)
        torch.cuda.synchronize()
        event: Any = torch.cuda.Event
        start, end = event(enable_timing=True), event(enable_timing=True)
        start.record()
        for _ in range(200):
            module.run(x)
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) * 1e3 / 200


def lengths(device: str) -> tuple[int, int, dict[str, float]]:
    """Choose the two lengths of the loop: ``TARGET_US``, and ``SLOWER`` times that."""
    if device == accelerator.CPU:
        return 4, 12, {}
    few, many = 20001, 60001
    short, long = clock_us(device, few), clock_us(device, many)
    each = (long - short) / (many - few)
    base = few + round((TARGET_US - short) / each)
    slow = few + round((TARGET_US * SLOWER - short) / each)
    # An odd number of turns: a compiler treats multiples of sixteen apart.
    base, slow = base | 1, slow | 1
    return base, slow, {"base_us": clock_us(device, base), "slow_us": clock_us(device, slow)}


def clopper_pearson(hits: int, total: int, level: float = 0.95) -> tuple[float, float]:
    """Return the exact binomial interval of a share."""

    def tail(share: float, least: int) -> float:
        terms = (math.comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(least, total + 1))
        return sum(terms)

    def solve(least: int, wanted: float) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if tail(middle, least) < wanted else (low, middle)
        return low

    if total == 0:
        return 0.0, 1.0
    half = (1 - level) / 2
    return (0.0 if hits == 0 else solve(hits, half)), (1.0 if hits == total else solve(hits + 1, 1 - half))


class Experiment:
    """Three processes and many sessions over them."""

    def __init__(self, device: str, asked: argparse.Namespace) -> None:
        self.device, self.asked = device, asked
        self.operator = operators.load("silu")
        self.kind = device.partition(":")[0]
        self.peaks = peaks.measure(device)
        self.base, self.slow, self.known = lengths(device)
        uuid = None if device == accelerator.CPU else str(accelerator.facts(device)["uuid"])
        self.telemetry = Telemetry(uuid)
        self.place = Workplace()
        self.sides = {
            name: Side(source(device, turns), place=self.place, device=device, limit_s=60)
            for name, turns in (("base", self.base), ("same", self.base), ("slow", self.slow))
        }
        for side in self.sides.values():
            side.start(self.operator, [WORKLOAD])
            side.rest()
        self.pipe_us = measure_pipe_us(self.sides["base"])

    def close(self) -> None:
        """End everything."""
        for side in self.sides.values():
            side.end()
        self.place.close()

    def session(self, candidate: str, baseline: str, launch: str) -> dict[str, Any]:
        """Run one session; returns its timing and its samples."""
        regime = Regime("cold", launch)
        sweep = 4 * self.peaks["l2_bytes"] if self.kind == "cuda" else 1 << 20
        shape = Shape(
            self.asked.calls, 2, self.asked.batches, sweep, self.asked.pairs, 1, self.asked.steady_s,
            self.asked.extensions,
        )  # fmt: skip
        began = time.monotonic()
        session = Session(
            self.operator, WORKLOAD, regime=regime, shape=shape, candidate=self.sides[candidate],
            baseline=self.sides[baseline], telemetry=self.telemetry,
        )  # fmt: skip
        raw = self.raw(session.run(is_open=lambda blocks: self.is_open(blocks, regime, shape)), regime, shape)
        timing = self.timing(raw)
        kept = ("ratio", "interval", "noise", "verdict", "quarantined", "candidate_us", "baseline_us", "clocks_agree")
        return {name: timing[name] for name in kept} | {"seconds": time.monotonic() - began, "samples": raw}

    def timing(self, raw: dict[str, Any]) -> dict[str, Any]:
        """Return what follows from a session's samples."""
        return statistics.recompute({"schema": 1, "device": self.kind, "results": [raw]})[0]

    def is_open(self, blocks: list[dict[str, Any]], regime: Regime, shape: Shape) -> bool:
        """Tell whether more blocks are to be run, by the same rule as ``kb`` has."""
        return bool(self.timing(self.raw(blocks, regime, shape))["verdict"] == "AMBIGUOUS")

    def raw(self, blocks: list[dict[str, Any]], regime: Regime, shape: Shape) -> dict[str, Any]:
        """Return a session's samples."""
        cost = self.operator.cost(WORKLOAD.axes, WORKLOAD.dtype)
        floor = floor_of(
            cost, dtype=WORKLOAD.dtype, cache="cold", launch=regime.launch, peaks=self.peaks, kind=self.kind,
            resident_bytes=self.peaks["l2_bytes"],
        )  # fmt: skip
        return {
            "workload": {"axes": dict(WORKLOAD.axes), "dtype": WORKLOAD.dtype, "law": WORKLOAD.law, "note": ""},
            "regime": {"cache": "cold", "launch": regime.launch},
            "baseline": {"name": "the same kernel", "version": "1", "source_sha256": ""},
            "calls_per_batch": shape.slots, "slots": shape.slots, "blocks": blocks, "floor": floor.to_json(),
            "launch_us": self.peaks["launch_us"], "pipe_us": self.pipe_us[0], "least_pipe_us": self.pipe_us[1],
            "alone_us": 0.0, "default_mhz": self.telemetry.default_mhz(), "sweep_floor_us": 0.0, "confirms": False,
        }  # fmt: skip


def plan(sessions: int) -> list[tuple[str, str, str, str]]:
    """Return (what, candidate, baseline, wanted verdict), the kinds mixed so that a drift falls on all."""
    rows = []
    for turn in range(sessions):
        pair = ("same", "base") if turn % 2 == 0 else ("base", "same")
        rows.append(("itself", *pair, "SAME"))
        if turn % 2 == 0:
            rows.append(("slower", "slow", "base", "SLOW"))
        else:
            rows.append(("faster", "base", "slow", "FAST"))
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Count verdicts, with exact intervals."""
    made: dict[str, Any] = {}
    for name, kinds in (("itself", ("itself",)), ("five percent", ("slower", "faster"))):
        chosen = [row for row in rows if row["what"] in kinds]
        right = sum(row["verdict"] == row["wanted"] and row["quarantined"] is None for row in chosen)
        wrong = sum(row["verdict"] in {"FAST", "SLOW"} - {row["wanted"]} for row in chosen)
        low, high = clopper_pearson(right, len(chosen))
        made[name] = {
            "sessions": len(chosen), "right": right, "interval": [round(low, 4), round(high, 4)],
            "wrong_direction": wrong, "wrong_interval": [round(v, 4) for v in clopper_pearson(wrong, len(chosen))],
            "verdicts": dict(Counter(row["verdict"] for row in chosen)),
            "quarantined": dict(Counter(row["quarantined"] for row in chosen if row["quarantined"] is not None)),
        }  # fmt: skip
    return made


def replay(found: dict[str, Any]) -> None:
    """Compute the verdicts of a file again: with the first pairs of each session alone, and with all of them."""
    rows: dict[str, list[dict[str, Any]]] = {"first pairs": [], "all pairs": []}
    for row in found["sessions"]:
        for name, blocks in (("first pairs", row["samples"]["blocks"][:16]), ("all pairs", row["samples"]["blocks"])):
            samples = {"schema": 1, "device": "cuda", "results": [row["samples"] | {"blocks": blocks}]}
            (timing,) = statistics.recompute(samples)
            rows[name].append(row | {"verdict": timing["verdict"], "quarantined": timing["quarantined"]})
    print(json.dumps({name: summary(chosen) for name, chosen in rows.items()}, indent=1))


def main() -> None:
    """Run all sessions that fit into the time, print counts, and write everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--sessions", type=int, default=100, help="of each of the two questions")
    parser.add_argument("--limit-s", type=float, default=330.0, help="no session begins later than this")
    parser.add_argument("--graph-sessions", type=int, default=0, help="of each question, by graph replay, after these")
    parser.add_argument("--calls", type=int, default=144)
    parser.add_argument("--batches", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--extensions", type=int, default=2)
    parser.add_argument("--steady-s", type=float, default=0.02)
    parser.add_argument("--out", default="")
    parser.add_argument("--replay", default="", help="measure nothing: compute all verdicts of such a file again")
    asked = parser.parse_args()
    if asked.replay:
        replay(json.loads(Path(asked.replay).read_text(encoding="utf-8")))
        return
    began = time.monotonic()
    experiment = Experiment(asked.device, asked)
    ready_s = time.monotonic() - began
    rows: list[dict[str, Any]] = []
    try:
        todo = [(*one, "eager") for one in plan(asked.sessions)] + [
            (*one, "graph") for one in plan(asked.graph_sessions)
        ]
        for what, candidate, baseline, wanted, launch in todo:
            if time.monotonic() - began > asked.limit_s:
                break
            row = {"what": what, "wanted": wanted, "launch": launch}
            rows.append(row | experiment.session(candidate, baseline, launch))
    finally:
        experiment.close()
    found = {
        "device": asked.device, "loops": [experiment.base, experiment.slow],
        "by_events": experiment.known, "peaks": experiment.peaks, "pipe_us": experiment.pipe_us,
        "ready_s": round(ready_s, 1), "seconds": round(time.monotonic() - began, 1),
        "summary": {
            launch: summary([row for row in rows if row["launch"] == launch]) for launch in ("eager", "graph")
        },
    }  # fmt: skip
    print(json.dumps(found, indent=1))
    for launch, what in itertools.product(("eager", "graph"), ("itself", "slower", "faster")):
        chosen = [row for row in rows if (row["what"], row["launch"]) == (what, launch)]
        if chosen:
            ratios = [row["ratio"] for row in chosen]
            noise, seconds = (statistics.median([row[name] for row in chosen]) for name in ("noise", "seconds"))
            print(
                f"{launch} {what}: ratio median {statistics.median(ratios):.4f}, {min(ratios):.4f} to "
                f"{max(ratios):.4f}, noise {noise:.4f}, {seconds:.2f} s a session"
            )
    if asked.out:
        Path(asked.out).write_text(json.dumps(found | {"sessions": rows}), encoding="utf-8")


if __name__ == "__main__":
    main()
