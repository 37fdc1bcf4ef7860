"""One session: blocks of candidate and baseline in turn, on the same contents, every output looked at.

Order of the blocks is ABBA: candidate, baseline, baseline, candidate, and so on, so that a drift of the machine falls
on both. While one side runs, the other one's processes stand still, so that neither can disturb the other. Both get
equal contents, equal orders and equal replacements, and the same launch mode.
"""

import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kb.validators.operators.spec import Arguments, Operator, Workload
from kb.validators.runtime.assessing import ArbiterProcess
from kb.validators.runtime.batches import Batch, Clocked
from kb.validators.runtime.commitment import Commitment
from kb.validators.runtime.errors import JudgeError, WorkerEndedError
from kb.validators.runtime.layout import Contents, Layout, contents_of, moving_bytes
from kb.validators.runtime.scrutiny import Result, Scrutiny
from kb.validators.runtime.sides import FailedError, Side
from kb.validators.runtime.stopwatch import Stopwatch
from kb.validators.runtime.supply import Drawn, Supply
from kb.validators.runtime.telemetry import Telemetry
from kb.validators.runtime.turns import ALONE, TOGETHER, finished

CANDIDATE, BASELINE = "candidate", "baseline"

_LOOKED_BYTES, _LEAST_LOOKS = 32 << 20, 4
"""Outputs of one batch that are handed over and compared with the baseline's, and how many calls at least."""

_AHEAD_BYTES = 1 << 30
"""Most contents that are drawn for later batches than those of one block."""

_LEG_BYTES = 3 << 30
"""Most contents and results of the pairs that are timed in one go, which lie in the judge's memory meanwhile."""

_SETTLE_S = 0.002
"""Time for the judge's own threads to fall asleep after they drew contents."""


@dataclass(frozen=True)
class Regime:
    """How the calls meet the caches, and how they are launched."""

    cache: str
    """``cold`` or ``warm``."""
    launch: str
    """``eager`` or ``graph``."""


@dataclass(frozen=True)
class Shape:
    """What a session does; fixed before anything of the candidate is timed."""

    slots: int
    """Sets of arguments, each called once a batch."""
    spares: int
    batches: int
    """Of one block."""
    sweep_bytes: int
    pairs: int
    """Of blocks; as many again, while the answer is open, for each of ``extensions``."""
    warm_ups: int = 2
    steady_s: float = 0.0
    """How long each side runs untimed, at least, before the first block, so that clocks have risen."""
    extensions: int = 0
    draw_s: float | None = None
    exact_s: float | None = None
    """As in ``Effort``."""
    copies: int = 1
    """Of each set of arguments that is drawn; every copy differs from the others by one element. Divides ``slots``."""

    @property
    def drawn(self) -> int:
        """Slots whose contents are drawn; the copies of the first one follow after these, then those of the second."""
        return self.slots // self.copies

    @property
    def sources(self) -> dict[int, int]:
        """Slots that are copies, and of which slot."""
        return {slot: (slot - self.drawn) // (self.copies - 1) for slot in range(self.drawn, self.slots)}

    @property
    def most_pairs(self) -> int:
        """Pairs at the most."""
        return self.pairs * (1 + self.extensions)


IsOpen = Callable[[list[dict[str, Any]]], bool]
"""Tells from blocks whether the answer is open."""


@dataclass
class _Pair:
    """One block of each side: what is called with which contents, and what came out."""

    order: tuple[str, str]
    batches: list[Batch]
    drawn: list[list[Drawn]]
    """One a batch, likewise the following."""
    picks: list[tuple[int, ...]]
    contents: list[Contents]
    """``drawn`` in bytes, since converting them is nothing that has to be done alone."""
    first: bool
    """Whether it is the first of its session."""
    found: dict[str, list[dict[int, Result]]] = field(default_factory=dict)
    answered: list[Commitment | None] = field(default_factory=list)
    """What the candidate answered for each batch before it handed its results over."""


@dataclass
class _Leg:
    """As many pairs as are timed in one go."""

    first: Contents
    """Of the calls that warm up."""
    pairs: list[_Pair]


class WrongBaselineError(JudgeError):
    """A result of the baseline is not what the reference says: it is no opponent."""


class NotCapturableError(Exception):
    """A side's calls cannot be captured in a graph; says which side, and what it raised."""

    def __init__(self, who: str, detail: str) -> None:
        super().__init__(f"{who}: {detail}")
        self.who, self.detail = who, detail


class Session:
    """Two sides, one workload, one regime."""

    def __init__(
        self,
        operator: Operator,
        workload: Workload,
        *,
        regime: Regime,
        shape: Shape,
        candidate: Side,
        baseline: Side,
        telemetry: Telemetry,
        arbiter: ArbiterProcess | None = None,
        example: Arguments | None = None,
        watch: Stopwatch | None = None,
    ) -> None:
        self._watch = watch or Stopwatch()
        self.regime, self.shape, self.telemetry = regime, shape, telemetry
        self.sides = {CANDIDATE: candidate, BASELINE: baseline}
        self.supply = Supply(operator, workload, shared=regime.cache == "warm", budget_s=shape.draw_s, example=example)
        self.scrutiny = Scrutiny(operator, workload, kind=candidate.kind, arbiter=arbiter, budget_s=shape.exact_s)
        self._ahead: list[list[Drawn]] = []
        self._dice = random.SystemRandom()
        self._batch = self._draw_batch()
        self._result_bytes = 0
        self._first: list[Drawn] = []
        self._pairs_at_once = 1

    def run(self, *, is_open: IsOpen | None = None) -> list[dict[str, Any]]:
        """Run all legs at once, as whoever has the machine to himself does; see ``steps``."""
        made: list[dict[str, Any]] = finished(self.steps(is_open=is_open))
        return made

    def steps(self, *, is_open: IsOpen | None = None) -> Generator[str, None, list[dict[str, Any]]]:
        """Run all pairs of blocks, some at a time: drawing and looking at results need not be alone, timing does.

        Args:
            is_open: Tells from the blocks so far whether they leave the answer open, so that as many again are worth
                running; asked as often as the shape has extensions, a rule that is fixed beforehand.

        Yields:
            ``TOGETHER`` or ``ALONE``: what the next step needs.

        Returns:
            Blocks in the order of time: ``who``, ``batches`` (times of whole batches) and ``telemetry``.

        Raises:
            FailedError: The candidate failed, or one of its results is wrong; the reason says how.
            NotCapturableError: A side's calls cannot be captured.
            ShapesVaryError: Contents of this workload differ in shape.
            JudgeError: The baseline failed; a ``WrongBaselineError`` if its results are wrong.
        """
        blocks: list[dict[str, Any]] = []
        self._watch.enter("drawing")
        yield from self._watch.turn(TOGETHER)
        self._begin()
        while len(blocks) < 2 * self.shape.most_pairs:
            pair = len(blocks) // 2
            if pair and pair % self.shape.pairs == 0 and (is_open is None or not is_open(blocks)):
                break
            left = self.shape.pairs - pair % self.shape.pairs
            leg = self._leg(pair, min(left, self._pairs_at_once))
            self._watch.enter("alone")
            yield from self._watch.turn(ALONE)
            try:
                self.prepare(leg.first)
            except NotCapturableError:
                for who in self.sides:  # nobody goes on while it is another's turn
                    self._guarded(who, Side.release)
                raise
            blocks += [block for one in leg.pairs for block in self._pair(one)]
            for who in self.sides:
                self._guarded(who, Side.release)
            self._watch.enter("compare")
            yield from self._watch.turn(TOGETHER)
            for one in leg.pairs:
                self._examine(one)
            self._watch.enter("drawing")
        return blocks

    def _begin(self) -> None:
        """Draw what is laid out, and fix how many pairs a leg has."""
        shape = self.shape
        batches = (shape.most_pairs + shape.warm_ups + 1) * shape.batches
        first = self.supply.begin(shape.drawn, shape.spares, batches)
        self._first = self.supply.with_copies(first[: shape.drawn], shape.copies) + first[shape.drawn :]
        moved = 2 * shape.drawn * self.supply.moving_bytes + 2 * max(_LOOKED_BYTES, _LEAST_LOOKS * self._output_bytes())
        self._pairs_at_once = max(1, _LEG_BYTES // (shape.batches * moved))

    def _output_bytes(self) -> int:
        """Return about how many bytes one call returns, by the operator's cost."""
        cost = self.supply.operator.cost(self.supply.workload.axes, self.supply.workload.dtype)
        return max(0, int(cost.essential_bytes) - self.supply.moving_bytes - self.supply.static_bytes)

    def _leg(self, pair: int, count: int) -> "_Leg":
        """Draw the contents of so many pairs of blocks, and of the calls that warm up before."""
        return _Leg(self._contents(self._drawn(self._batch)), [self._pair_drawn(pair + k) for k in range(count)])

    def _pair_drawn(self, pair: int) -> "_Pair":
        shape = self.shape
        batches = [self._batch if self.regime.launch == "graph" else self._draw_batch() for _ in range(shape.batches)]
        order = (CANDIDATE, BASELINE) if pair % 2 == 0 else (BASELINE, CANDIDATE)
        drawn = [self._drawn(one) for one in batches]
        contents = [self._contents(one) for one in drawn]
        return _Pair(order, batches, drawn, [self._picks() for _ in batches], contents, pair == 0)

    def prepare(self, warming: Contents) -> None:
        """Lay out slots on both sides, capture graphs where they are asked for, and warm up.

        Args:
            warming: Contents for the calls that are not timed.

        Raises:
            FailedError: The candidate failed.
            NotCapturableError: A side's calls cannot be captured.
            JudgeError: The baseline failed, or something does not fit.
        """
        shape = self.shape
        shared = self.supply.static if self.supply.shared else ()
        layout = Layout(self._first, slots=shape.slots, moving=self.supply.moving, shared=shared, sources=shape.sources)
        for who in self.sides:
            self._guarded(who, lambda side: side.lay(layout))
            self._guarded(who, Side.rest)
        eager = Batch(self._batch.order, self._batch.swaps, sweep_bytes=shape.sweep_bytes)
        first = self._contents(self._first)
        for who in self.sides:
            self._timed(who, first, eager, (0,))
            if who == BASELINE:
                self._result_bytes = self.sides[who].outputs([0])[0].size_bytes
            if self.regime.launch == "graph":
                failed = self._guarded(who, lambda side: side.capture(self._batch))
                if failed is not None:
                    raise NotCapturableError(who, failed)
            self._guarded(who, Side.rest)
        for who in self.sides:
            began = time.monotonic()
            turns = 0
            while turns < shape.warm_ups or time.monotonic() - began < shape.steady_s:
                self._timed(who, warming, self._batch, (0,))
                turns += 1
            self._guarded(who, Side.rest)

    def _pair(self, pair: "_Pair") -> list[dict[str, Any]]:
        """Time one block of each side; results stay with the pair."""
        looks = [self._looks(batch, chosen) for batch, chosen in zip(pair.batches, pair.picks, strict=True)]
        blocks = []
        time.sleep(_SETTLE_S)
        for who in pair.order:
            rows = []
            found = pair.found.setdefault(who, [])
            for given, batch, chosen, looked, known in zip(
                pair.contents, pair.batches, pair.picks, looks, pair.drawn, strict=True
            ):
                rows.append(self._timed(who, given, batch, chosen))
                found.append(self._guarded(who, partial(Side.outputs, calls=looked)))
                if who == CANDIDATE:
                    pair.answered.append(self.sides[who].commitment)
                    self._look_at_inputs(known, given, batch, chosen)
            self._guarded(who, Side.rest)
            blocks.append({"who": who, "batches": [row.rounded() for row in rows], "telemetry": self.telemetry.read()})
        return blocks

    def _examine(self, pair: "_Pair") -> None:
        for number, batch in enumerate(pair.batches):
            self._scrutinise(
                pair.drawn[number], batch, pair.picks[number], pair.found[CANDIDATE][number],
                pair.found[BASELINE][number], first=pair.first and number == 0,
            )  # fmt: skip
            answered = pair.answered[number]
            handed = {at: one.data for at, one in pair.found[CANDIDATE][number].items()}
            broken = None if answered is None else answered.broken(handed)
            if broken is not None:
                raise FailedError("late_write", f"a result is another one than right after its batch (call {broken})")

    def _draw_batch(self) -> Batch:
        """Draw the order of the calls, and before which of them contents are replaced."""
        shape = self.shape
        order = list(range(shape.slots))
        self._dice.shuffle(order)
        places = sorted(self._dice.sample(range(shape.slots), shape.spares))
        swaps = tuple((at, order[at], k) for k, at in enumerate(places))
        return Batch(
            tuple(order), swaps, launch=self.regime.launch, sweep_bytes=shape.sweep_bytes,
            touch=self.regime.cache == "warm",
        )  # fmt: skip

    def _drawn(self, batch: Batch) -> list[Drawn]:
        """Return the contents of slots and spares; each spare holds what comes into its slot."""
        if not self._ahead:
            self._ahead = self.supply.several(self._batches_at_once(), self.shape.drawn)
        drawn = self.supply.with_copies(self._ahead.pop(), self.shape.copies)
        return drawn + [self.supply.replacement(drawn[slot], slot) for _, slot, _ in batch.swaps]

    def _batches_at_once(self) -> int:
        """Return for how many batches contents are drawn at once: of one block, or so many that all cores draw."""
        size = self.shape.drawn * max(1, self.supply.moving_bytes + self.supply.static_bytes)
        return max(self.shape.batches, min(self.supply.threads // self.shape.drawn, _AHEAD_BYTES // size))

    def _looks(self, batch: Batch, picks: Sequence[int]) -> list[int]:
        """Choose the calls whose outputs are compared with the baseline's: all, or as many as are little to move.

        No worker learns of it before the batch is over.
        """
        most = max(_LEAST_LOOKS, _LOOKED_BYTES // max(self._result_bytes, 1))
        special = {at for at, _, _ in batch.swaps} | set(picks)
        rest = [at for at in range(self.shape.slots) if at not in special]
        return sorted(special | set(self._dice.sample(rest, max(0, min(len(rest), most - len(special))))))

    def _picks(self) -> tuple[int, ...]:
        """Choose the calls whose outputs are asked for at once: the last one, and any other."""
        last = self.shape.slots - 1
        return (last, self._dice.randrange(last)) if last else (0,)

    def _contents(self, drawn: Sequence[Drawn]) -> Contents:
        return contents_of(drawn, self.supply.moving, self.shape.sources)

    def _timed(self, who: str, contents: Contents, batch: Batch, picks: Sequence[int]) -> Clocked:
        whole, edits = contents
        found: Clocked = self._guarded(who, lambda side: side.time(whole, batch, picks=picks, edits=edits))
        return found

    def _guarded(self, who: str, act: Any) -> Any:  # noqa: ANN401 - what ``act`` takes and returns
        """Do something with a side; a failure of the baseline is none of the candidate's.

        Raises:
            FailedError: The candidate failed.
            JudgeError: The baseline did.
        """
        try:
            return act(self.sides[who])
        except (FailedError, WorkerEndedError) as error:
            if who == BASELINE:
                said = self.sides[who].said()
                raise JudgeError(f"the baseline failed: {error}{said}", "time against another one") from error
            raise FailedError(error.reason, error.detail) from error

    def _look_at_inputs(self, drawn: Sequence[Drawn], given: Contents, batch: Batch, picks: Sequence[int]) -> None:
        replaced = {slot for _, slot, _ in batch.swaps}
        numbers = [batch.order[at] for at in picks if batch.order[at] not in replaced]
        whole, _ = given
        contents = {n: whole[n] or moving_bytes(drawn[n], self.supply.moving) for n in numbers}
        if not self._guarded(CANDIDATE, lambda side: side.inputs_intact(contents, numbers)):
            raise FailedError("input_changed", "an input was written to (in a timed batch)")

    def _scrutinise(
        self,
        drawn: Sequence[Drawn],
        batch: Batch,
        picks: Sequence[int],
        found: Mapping[int, Result],
        counterparts: Mapping[int, Result],
        *,
        first: bool,
    ) -> None:
        replaced = {at: drawn[self.shape.slots + spare] for at, _, spare in batch.swaps}
        given = [replaced.get(at, drawn[slot]) for at, slot in enumerate(batch.order)]
        chosen = [*replaced, *picks]
        problem = self.scrutiny.problem(given, found, counterparts, chosen=chosen, always=chosen if first else ())
        asked = problem.call if problem is not None and problem.values else chosen[0] if first else None
        if asked is not None and self.scrutiny.exact(given[asked], counterparts[asked]) is not None:
            raise WrongBaselineError("a result of the baseline is wrong", "time against another one")
        if problem is not None:
            raise FailedError(problem.reason, f"{problem.detail} (timed call {problem.call})")
