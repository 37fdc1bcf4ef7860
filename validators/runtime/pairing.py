"""One session: blocks of candidate and baseline in turn, on the same contents, every output looked at.

Order of the blocks is ABBA: candidate, baseline, baseline, candidate, and so on, so that a drift of the machine falls
on both. While one side runs, the other one's processes stand still, so that neither can disturb the other. Both get
equal contents, equal orders and equal replacements, and the same launch mode.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from kb.validators.operators.spec import Arguments, Operator, Workload
from kb.validators.runtime.assessing import ArbiterProcess
from kb.validators.runtime.errors import JudgeError, WorkerEndedError
from kb.validators.runtime.layout import Layout, moving_bytes
from kb.validators.runtime.scrutiny import Result, Scrutiny
from kb.validators.runtime.sides import Batch, Clocked, FailedError, Side
from kb.validators.runtime.supply import Drawn, Supply
from kb.validators.runtime.telemetry import Telemetry

CANDIDATE, BASELINE = "candidate", "baseline"

_LOOKED_BYTES, _LEAST_LOOKS = 32 << 20, 4
"""Outputs of one batch that are handed over and compared with the baseline's, and how many calls at least."""

_AHEAD_BYTES = 1 << 30
"""Most contents that are drawn for later batches than those of one block."""

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

    @property
    def most_pairs(self) -> int:
        """Pairs at the most."""
        return self.pairs * (1 + self.extensions)


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
    ) -> None:
        self.regime, self.shape, self.telemetry = regime, shape, telemetry
        self.sides = {CANDIDATE: candidate, BASELINE: baseline}
        self.supply = Supply(operator, workload, shared=regime.cache == "warm", budget_s=shape.draw_s, example=example)
        self.scrutiny = Scrutiny(operator, workload, kind=candidate.kind, arbiter=arbiter, budget_s=shape.exact_s)
        self._ahead: list[list[Drawn]] = []
        self._dice = random.SystemRandom()
        self._batch = self._draw_batch()
        self._result_bytes = 0
        self._ready = False

    def prepare(self) -> None:
        """Lay out slots on both sides, capture graphs where they are asked for, and warm up.

        Raises:
            FailedError: The candidate failed.
            NotCapturableError: A side's calls cannot be captured.
            ShapesVaryError: Contents of this workload differ in shape.
            JudgeError: The baseline failed, or something does not fit.
        """
        shape = self.shape
        batches = (shape.most_pairs + shape.warm_ups + 1) * shape.batches
        drawn = self.supply.begin(shape.slots, shape.spares, batches)
        shared = self.supply.static if self.supply.shared else ()
        layout = Layout(drawn, slots=shape.slots, moving=self.supply.moving, shared=shared)
        for who in self.sides:
            self._guarded(who, lambda side: side.lay(layout))
            self._guarded(who, Side.rest)
        eager = Batch(self._batch.order, self._batch.swaps, sweep_bytes=shape.sweep_bytes)
        contents = self._bytes(drawn)
        for who in self.sides:
            self._run(who, contents, eager, (0,))
            if who == BASELINE:
                self._result_bytes = self.sides[who].outputs([0])[0].size_bytes
            if self.regime.launch == "graph":
                failed = self._guarded(who, lambda side: side.capture(self._batch))
                if failed is not None:
                    raise NotCapturableError(who, failed)
            self._guarded(who, Side.rest)
        self._warm_up()
        self._ready = True

    def _warm_up(self) -> None:
        for who in self.sides:
            began = time.monotonic()
            turns = 0
            drawn = self.supply.following(self.shape.slots, self.shape.spares)
            while turns < self.shape.warm_ups or time.monotonic() - began < self.shape.steady_s:
                self._run(who, self._bytes(drawn), self._batch, (0,))
                turns += 1
            self._guarded(who, Side.rest)

    def run(self, *, is_open: Callable[[list[dict[str, Any]]], bool] | None = None) -> list[dict[str, Any]]:
        """Run all pairs of blocks.

        Args:
            is_open: Tells from the blocks so far whether they leave the answer open, so that as many again are worth
                running; asked as often as the shape has extensions, a rule that is fixed beforehand.

        Returns:
            Blocks in the order of time: ``who``, ``batches`` (times of whole batches) and ``telemetry``.

        Raises:
            FailedError: The candidate failed, or one of its results is wrong; the reason says how.
            JudgeError: The baseline failed; a ``WrongBaselineError`` if its results are wrong.
        """
        if not self._ready:
            self.prepare()
        blocks: list[dict[str, Any]] = []
        for pair in range(self.shape.most_pairs):
            if pair and pair % self.shape.pairs == 0 and (is_open is None or not is_open(blocks)):
                break
            order = (CANDIDATE, BASELINE) if pair % 2 == 0 else (BASELINE, CANDIDATE)
            blocks += self._pair(order, first=pair == 0)
        return blocks

    def _pair(self, order: Sequence[str], *, first: bool) -> list[dict[str, Any]]:
        shape = self.shape
        batches = [self._batch if self.regime.launch == "graph" else self._draw_batch() for _ in range(shape.batches)]
        drawn = [self._drawn(batch) for batch in batches]
        contents = [self._bytes(one) for one in drawn]
        picks = [self._picks() for _ in drawn]
        looks = [self._looks(batch, chosen) for batch, chosen in zip(batches, picks, strict=True)]
        blocks = []
        found: dict[str, list[dict[int, Result]]] = {who: [] for who in order}
        time.sleep(_SETTLE_S)
        for who in order:
            rows = []
            for given, batch, chosen, looked in zip(contents, batches, picks, looks, strict=True):
                rows.append(self._run(who, given, batch, chosen))
                found[who].append(self._guarded(who, partial(Side.outputs, calls=looked)))
                if who == CANDIDATE:
                    self._look_at_inputs(given, batch, chosen)
            self._guarded(who, Side.rest)
            blocks.append(_block(who, rows, self.telemetry))
        for number, batch in enumerate(batches):
            self._scrutinise(
                drawn[number], batch, picks[number], found[CANDIDATE][number], found[BASELINE][number],
                first=first and number == 0,
            )  # fmt: skip
        return blocks

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
            self._ahead = self.supply.several(self._batches_at_once(), self.shape.slots)
        drawn = self._ahead.pop()
        return drawn + [self.supply.replacement(drawn[slot], slot) for _, slot, _ in batch.swaps]

    def _batches_at_once(self) -> int:
        """Return for how many batches contents are drawn at once: of one block, or so many that all cores draw."""
        size = self.shape.slots * max(1, self.supply.moving_bytes + self.supply.static_bytes)
        return max(self.shape.batches, min(self.supply.threads // self.shape.slots, _AHEAD_BYTES // size))

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

    def _bytes(self, drawn: Sequence[Drawn]) -> list[list[bytes]]:
        return [moving_bytes(one, self.supply.moving) for one in drawn]

    def _run(self, who: str, contents: Sequence[Sequence[bytes]], batch: Batch, picks: Sequence[int]) -> Clocked:
        found: Clocked = self._guarded(who, lambda side: side.time(contents, batch, picks=picks))
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
                raise JudgeError(f"the baseline failed: {error}", "time against another one") from error
            raise FailedError(error.reason, error.detail) from error

    def _look_at_inputs(self, contents: Sequence[Sequence[bytes]], batch: Batch, picks: Sequence[int]) -> None:
        replaced = {slot for _, slot, _ in batch.swaps}
        numbers = [batch.order[at] for at in picks if batch.order[at] not in replaced]
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


def _block(who: str, rows: Sequence[Clocked], telemetry: Telemetry) -> dict[str, Any]:
    seen = telemetry.read()
    return {"who": who, "batches": [_rounded(asdict(row)) for row in rows], "telemetry": seen}


def _rounded(row: dict[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None else round(value, 3) for name, value in row.items()}
