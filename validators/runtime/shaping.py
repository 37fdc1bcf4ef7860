"""How many calls a batch has and which baseline is the strongest: found out with baselines alone.

Nothing of a candidate goes into it, so that being slow while measurements are set up gains nothing. Batches are so
long that setting one off costs less than a hundredth of it, as far as slots fit; cold ones go through at least four
times the last-level cache as far as that fits too, and that much other memory is written before each.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kb.validators.runtime import accelerator
from kb.validators.runtime.assessing import ArbiterProcess
from kb.validators.runtime.batches import Batch
from kb.validators.runtime.floors import operand_dtype, rate_tflops
from kb.validators.runtime.layout import Layout, contents_of
from kb.validators.runtime.pairing import Regime, Shape
from kb.validators.runtime.scrutiny import Scrutiny
from kb.validators.runtime.sides import FailedError, Side
from kb.validators.runtime.statistics import median
from kb.validators.runtime.supply import Supply

PIPE_SHARE = 0.01
"""Largest share of a batch that setting it off may cost, where enough slots fit."""

ROTATION = 4
"""Times the last-level cache that a cold batch goes through."""

MOST_SLOTS = {"cpu": 1024, "cuda": 2048}
_SLOT_BYTES = {"cpu": 192 << 20, "cuda": 4 << 30}
_MOVING_BYTES = {"cpu": 64 << 20, "cuda": 256 << 20}
"""Most memory of all slots, and most new contents of one batch, bytes."""

_WARM_SLOTS = 8
"""Fewer slots than this in the cache are no warm regime: each call must have contents of its own."""

_SHORT_US, _SEVERAL_BYTES = 5000.0, 16 << 20
"""Batches shorter than this, with no more new contents than that, come three to a block, for its median's sake."""

_FEW_SLOTS, _STRETCH = 4, 3
"""So many slots may take up to so many times the bytes of new contents that are admitted otherwise."""

_ALONE_US, _ALONE_BATCHES = 300.0, 5
"""Batches shorter than this with a call or two come so many to a block: setting them off is a good part of them."""

_STEADY_S = {"cpu": 0.0, "cuda": 0.3}
"""How long each side runs before its first block counts."""

_READING_SHARE = 0.5
"""Largest share of arithmetic, of the time that moving the essential bytes takes, in work that reading bounds."""

_SWAP_SHARE = 0.02
"""Share of a batch's traffic that replacing contents may be, with more than one replacement."""

_SHOWN = 4
"""Changes of one element that all have to show, for copies to be admitted."""

_AHEAD_BYTES = 1 << 30
"""Most contents that are drawn before baselines are tried out."""

_TRIAL_SLOTS, _TRIALS, _PIPE_READINGS = 8, 3, 15


@dataclass(frozen=True)
class Effort:
    """How much is measured; fixed beforehand."""

    pairs: int = 8
    """Of blocks, in ABBA order; at least five for a verdict."""
    extensions: int = 2
    """How often as many again are run while the answer is AMBIGUOUS."""
    least_calls: int = 30
    """Of one block."""
    most_slots: int | None = None
    """None: as many as the device's bounds admit."""
    warm_ups: int = 2
    confirm: bool = True
    """Whether a difference is measured again in fresh processes, whose result replaces the first."""
    most_bytes: int | None = None
    """Most new contents of one batch, whose drawing takes most of the time; None: as many as the device's bound."""
    slot_bytes: int | None = None
    """Most bytes of the slots that are drawn, weights included, all of which are uploaded; None: the device's bound."""
    draw_s: float | None = None
    """Time for drawing in one session beyond which contents come back to other weights; None: ``supply.BUDGET_S``."""
    exact_s: float | None = None
    """Time for comparisons with the reference in one session; None: ``scrutiny.BUDGET_S``."""


@dataclass(frozen=True)
class Trial:
    """What a baseline alone showed."""

    call_us: float
    """Median."""
    least_us: float
    """Least."""
    pipe_us: float
    """An empty batch, median."""
    least_pipe_us: float
    """Least of it."""
    shape: Shape


def measure_pipe_us(side: Side, launch: str = "eager") -> tuple[float, float]:
    """Return what an empty batch takes, microseconds: the median of some, and the least.

    Args:
        side: Whose.
        launch: ``graph``: that of an empty graph; where none can be captured, that of no call at all, which is less.
    """
    batch = Batch((), launch=launch)
    if launch == "graph" and side.capture(batch) is not None:
        batch = Batch(())
    readings = [side.time([], batch, picks=()).wall_us for _ in range(_PIPE_READINGS)]
    side.rest()
    return median(readings), min(readings)


def shape_for(
    call_us: float,
    pipe_us: float,
    supply: Supply,
    *,
    regime: Regime,
    kind: str,
    cache_bytes: int,
    effort: Effort,
    copied: bool = False,
) -> Shape | None:
    """Choose slots and batches.

    Args:
        call_us: One call of the baseline.
        pipe_us: An empty batch.
        supply: Knows the bytes of a slot.
        regime: Cold or warm.
        kind: ``cpu`` or ``cuda``.
        cache_bytes: Last-level cache of the device.
        effort: Bounds.
        copied: Whether slots beyond those that are drawn may be copies but for one element: ``reading_bounds`` and
            ``changes_show``.

    Returns:
        The shape; None if the working set of a warm regime does not fit into half of the cache.
    """
    own = supply.moving_bytes + (0 if regime.cache == "warm" else supply.static_bytes)
    wanted = max(effort.least_calls, math.ceil(pipe_us / PIPE_SHARE / max(call_us, 0.01)))
    most = _most_drawn(supply, own, kind, effort)
    sweep = 0
    if regime.cache == "warm":
        most = min(most, (cache_bytes // 2 - supply.static_bytes) // max(supply.moving_bytes, 1))
        if most < min(_WARM_SLOTS, effort.least_calls):
            return None
    else:
        wanted = max(wanted, min(math.ceil(ROTATION * cache_bytes / max(own, 1)), 256))
        sweep = ROTATION * cache_bytes
    drawn = max(1, min(wanted, most))
    room = min(MOST_SLOTS[kind], _SLOT_BYTES[kind] // max(_kept_bytes(supply), 1))
    copies = max(1, min(math.ceil(wanted / drawn), room // drawn)) if copied and regime.cache == "cold" else 1
    slots = drawn * copies
    several = 3 if slots * call_us < _SHORT_US and drawn * supply.moving_bytes <= _SEVERAL_BYTES else 1
    lonely = _ALONE_BATCHES if slots <= 2 and slots * call_us < _ALONE_US else 1
    batches = max(several, lonely, math.ceil(effort.least_calls / slots))
    spares = min(2, slots // 2)
    if 2 * spares * supply.moving_bytes > _SWAP_SHARE * slots * _kept_bytes(supply):
        spares = min(1, spares)
    return Shape(
        slots, spares, batches, sweep, effort.pairs, effort.warm_ups, _STEADY_S[kind], effort.extensions,
        effort.draw_s, effort.exact_s, copies,
    )  # fmt: skip


def _kept_bytes(supply: Supply) -> int:
    """Return what a copied slot takes: its arguments and, until the batch is over, its results."""
    cost = supply.operator.cost(supply.workload.axes, supply.workload.dtype)
    return max(supply.moving_bytes + supply.static_bytes, int(cost.essential_bytes))


def _most_drawn(supply: Supply, own: int, kind: str, effort: Effort) -> int:
    """Return how many slots may be drawn; ``own`` bytes each."""
    fitting = (effort.slot_bytes or _SLOT_BYTES[kind]) // max(own, 1)
    most = effort.most_bytes or _MOVING_BYTES[kind]
    new = max(most // max(supply.moving_bytes, 1), min(_FEW_SLOTS, _STRETCH * most // max(supply.moving_bytes, 1)))
    return min(MOST_SLOTS[kind], fitting, new, effort.most_slots or MOST_SLOTS[kind])


def drawn_ahead(supply: Supply, kind: str, effort: Effort) -> int:
    """Return for how many slots contents are drawn before baselines are tried out, so that nobody draws alone."""
    few = few_slots(supply, kind, effort)
    if kind == accelerator.CPU:
        return few
    own = supply.moving_bytes + supply.static_bytes
    return max(few, min(_most_drawn(supply, own, kind, effort), _AHEAD_BYTES // max(own, 1)))


def few_slots(supply: Supply, kind: str, effort: Effort) -> int:
    """Return how many slots a first trial has."""
    size = supply.moving_bytes + supply.static_bytes
    return max(1, min(_TRIAL_SLOTS, (effort.most_bytes or _MOVING_BYTES[kind]) // max(size, 1)))


def try_out(
    side: Side,
    supply: Supply,
    *,
    regime: Regime,
    peaks: Mapping[str, Any],
    effort: Effort,
    copied: bool = False,
) -> Trial | None:
    """Time one baseline alone, and choose the shape of a session from it.

    Args:
        side: The baseline's, started.
        supply: Of the workload, with shared weights in a warm regime; its kept contents serve all trials.
        regime: How.
        peaks: What ``peaks.measure`` returned.
        effort: Bounds.
        copied: As for ``shape_for``.

    Returns:
        Its time per call with that shape; None where the regime does not fit the workload.

    Raises:
        FailedError, WorkerEndedError: The baseline cannot do this.
        ShapesVaryError: Contents differ in shape.
    """
    few = few_slots(supply, side.kind, effort)
    sweep = ROTATION * int(peaks["l2_bytes"]) if regime.cache == "cold" else 0
    first = Shape(few, 0, 1, sweep, 1)
    pipe_us, least_pipe_us = measure_pipe_us(side, regime.launch)
    readings = _alone(side, supply, first, regime)
    shape = shape_for(
        median(readings),
        pipe_us,
        supply,
        regime=regime,
        kind=side.kind,
        cache_bytes=int(peaks["l2_bytes"]),
        effort=effort,
        copied=copied,
    )
    if shape is None:
        return None
    if shape.slots != few:
        readings = _alone(side, supply, replace(shape, spares=0), regime)
    return Trial(median(readings), min(readings), pipe_us, least_pipe_us, shape)


def may_be_copied(supply: Supply, kind: str) -> bool:
    """Tell whether slots may be copies of drawn ones, as far as can be told before anything was measured.

    A copy has its source's weights, which whoever knows the source's result need not read again: he reads the other
    inputs, what they were before, and that result. So weights must be less than inputs and results together. And there
    must be room for more than one slot.
    """
    if kind == accelerator.CPU or 2 * _kept_bytes(supply) > _SLOT_BYTES[kind] or not supply.can_be_edited:
        return False
    cost = supply.operator.cost(supply.workload.axes, supply.workload.dtype)
    return supply.static_bytes <= cost.essential_bytes - supply.static_bytes


def reading_bounds(supply: Supply, kind: str, peaks: Mapping[str, Any]) -> bool:
    """Tell whether reading is most of the work, so that looking for what changed gains nothing.

    Whoever looks for what changed, to compute that alone, has to read all of the input, and what it was before. Where
    arithmetic is most of the work that would pay, and contents are drawn.
    """
    if not may_be_copied(supply, kind):
        return False
    workload = supply.workload
    cost = supply.operator.cost(workload.axes, workload.dtype)
    tflops = rate_tflops(peaks, operand_dtype(supply.operator, workload))
    return bool(tflops) and cost.flops / tflops / 1e6 < _READING_SHARE * cost.essential_bytes / peaks["copy_gbps"] / 1e3


def changes_show(side: Side, supply: Supply, arbiter: ArbiterProcess | None = None) -> bool | None:
    """Tell whether the reference sees a changed element in the result, so that nobody gets by without looking for it.

    In a softmax over a long context one element more or less is lost in the rounding: a result of contents without the
    change would be accepted for those with it, and whoever returned it again would have computed nothing.

    Args:
        side: A baseline's, started.
        supply: Of the workload.
        arbiter: As for ``Scrutiny``.

    Returns:
        True if the baseline's result is refused for some copies of its contents; None if it is not right for these
        contents themselves.

    Raises:
        FailedError, WorkerEndedError: The baseline cannot do this.
    """
    drawn = supply.kept(1)
    side.lay(Layout(drawn, slots=1, moving=supply.moving, shared=supply.static if supply.shared else ()))
    side.time(contents_of(drawn, supply.moving, {})[0], Batch((0,)), picks=(0,))
    (result,) = side.outputs([0]).values()
    side.rest()
    scrutiny = Scrutiny(supply.operator, supply.workload, kind=side.kind, arbiter=arbiter)
    if scrutiny.exact(drawn[0], result) is not None:
        return None
    return all(scrutiny.exact(copy, result) is not None for copy in supply.siblings(drawn[0], _SHOWN))


def _alone(side: Side, supply: Supply, shape: Shape, regime: Regime) -> list[float]:
    """Return the time of one call in a few batches, microseconds."""
    # A baseline is trusted: it may meet the same contents again, which a candidate never does.
    drawn = supply.with_copies(supply.kept(shape.drawn), shape.copies)
    shared = supply.static if supply.shared else ()
    side.lay(Layout(drawn, slots=shape.slots, moving=supply.moving, shared=shared, sources=shape.sources))
    contents, edits = contents_of(drawn, supply.moving, shape.sources)
    order = tuple(range(shape.slots))
    side.time(contents, Batch(order, sweep_bytes=shape.sweep_bytes), picks=(0,), edits=edits)
    batch = Batch(order, launch=regime.launch, sweep_bytes=shape.sweep_bytes, touch=regime.cache == "warm")
    if regime.launch == "graph":
        failed = side.capture(batch)
        if failed is not None:
            raise FailedError("crashed", failed)
    if side.kind != accelerator.CPU:  # they are there, and the cache is emptied anyway
        contents, edits = [], ()
    readings = [side.time(contents, batch, picks=(0,), edits=edits).wall_us / shape.slots for _ in range(_TRIALS + 1)]
    side.rest()
    return readings[1:]
