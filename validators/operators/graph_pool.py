"""Graph pools: which batch sizes to capture, and where the memory of each captured graph lies."""

import random
from collections import Counter
from collections.abc import Callable

from kb.validators.operators.allocation import Allocation, Form, GraphTask, drawn_around, log_uniform
from kb.validators.operators.spec import Axes, Workload

_KIB = 1 << 10


def _task(axes: Axes, dice: random.Random, draws: list[Callable[[], int]], *, aligned: tuple[int, ...]) -> GraphTask:
    """Observe each stream's traffic twice: once to be shown, once to be held back."""
    shown, held_back = (
        tuple(dict(Counter(min(axes["max_batch"], max(1, draw())) for _ in range(axes["steps"]))) for draw in draws)
        for _ in range(2)
    )
    row_bytes, graph_bytes = drawn_around(axes["row_kib"] * _KIB, dice), log_uniform(64 * _KIB, 4096 * _KIB, dice)
    task = GraphTask(shown, held_back, axes["max_batch"], row_bytes, graph_bytes, 0, dice.choice(aligned))
    budget = task.least_bytes() + graph_bytes * dice.randint(0, axes["graphs"]) + dice.randrange(graph_bytes)
    return GraphTask(
        shown, held_back, task.max_batch, row_bytes, graph_bytes, budget, task.alignment
    )  # fmt: skip


_ALIGNED = (256, 512, 4096)


def waves(axes: Axes, dice: random.Random) -> GraphTask:
    """One stream whose batch comes and goes: log-normal around an eighth of the largest."""
    centre = axes["max_batch"] / 8
    return _task(axes, dice, [lambda: round(centre * dice.lognormvariate(0, 0.9))], aligned=_ALIGNED)


def two_levels(axes: Axes, dice: random.Random) -> GraphTask:
    """One stream with a quiet and a busy level, and next to nothing between."""
    low, high = dice.randint(1, 6), dice.randint(axes["max_batch"] // 2, axes["max_batch"])

    def draw() -> int:
        return round(dice.gauss(low, 1)) if dice.random() < 0.6 else round(dice.gauss(high, high / 20))

    return _task(axes, dice, [draw], aligned=_ALIGNED)


def everything(axes: Axes, dice: random.Random) -> GraphTask:
    """One stream, every batch size equally often."""
    return _task(axes, dice, [lambda: dice.randint(1, axes["max_batch"])], aligned=_ALIGNED)


def draft_and_target(axes: Axes, dice: random.Random) -> GraphTask:
    """Two streams that replay at the same time: a draft model at small batches, the target model at waves."""
    centre = axes["max_batch"] / 6
    draws = [lambda: dice.randint(1, 8), lambda: round(centre * dice.lognormvariate(0, 0.7))]
    return _task(axes, dice, draws, aligned=_ALIGNED)


_RUN = """\
def run(histograms: list[dict[int, int]], max_batch: int, row_bytes: int, graph_bytes: int, budget_bytes: int,
    alignment: int) -> list of lists, one a stream, of (batch, offset, size): the graphs to capture, by ascending batch,
    the last for max_batch, and the region of the pool that each may write, at least batch * row_bytes; graphs of one
    stream never replay at the same time and may share bytes, graphs of two streams may not; the end of the last region
    plus graph_bytes a graph stays within the budget; MemoryError if not even one graph a stream fits"""

SPEC = Allocation(
    name="graph_pool",
    summary="choose batch sizes to capture and where each graph's memory lies, within a budget",
    forms=(Form("run", _RUN),),
    axes=("max_batch", "steps", "row_kib", "graphs"),
    laws={"waves": waves, "two_levels": two_levels, "everything": everything, "draft_and_target": draft_and_target},
    workloads=(
        Workload({"max_batch": 64, "steps": 300, "row_kib": 16, "graphs": 10}, "uint8", "waves"),
        Workload({"max_batch": 96, "steps": 300, "row_kib": 16, "graphs": 8}, "uint8", "two_levels"),
        Workload({"max_batch": 48, "steps": 300, "row_kib": 16, "graphs": 12}, "uint8", "everything"),
        Workload({"max_batch": 64, "steps": 300, "row_kib": 16, "graphs": 10}, "uint8", "draft_and_target"),
        Workload(
            {"max_batch": 256, "steps": 2000, "row_kib": 2300, "graphs": 30}, "uint8", "waves", "target", "Qwen3.6"
        ),
        Workload(
            {"max_batch": 256, "steps": 2000, "row_kib": 2300, "graphs": 24}, "uint8", "draft_and_target", "target",
            "Qwen3.6 with a draft model",
        ),
    ),
    metrics={
        "live_bytes": "largest batch's rows of every stream plus the bytes of the captured graphs: the lower bound",
        "peak_bytes": "end of the last region plus the bytes of the captured graphs",
        "fragmentation": "peak_bytes / live_bytes",
        "graphs": "graphs captured, over all streams",
        "padded": "rows computed in vain, as a share of all rows computed, on traffic that was held back",
        "budget_used": "peak_bytes / budget",
        "outside_bytes": "growth of the device's used memory seen from outside with the graphs captured",
        "us_per_operation": "judge's clock around the call",
    },
    baselines=("one_pool_per_graph",),
    source="row bytes: the live peak of a decode step of Qwen3.6-35B-A3B",
)  # fmt: skip
