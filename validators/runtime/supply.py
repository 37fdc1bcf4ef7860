"""Contents of timed batches: drawn by the operator's law in the judge's process, new for every batch.

Arguments that are static by contract (weights) are drawn once for each slot; all others are drawn again for every
batch, so that no call of any batch has contents that an earlier one had. Only where drawing costs too much, as with the
weights of many experts, which are drawn along and thrown away, the contents of others come back, to other weights as
long as there are any, and each time with another element changed where the operator admits that.
"""

import math
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch

from kb.validators.operators.spec import Arguments, Buffer, Operator, Workload, generator
from kb.validators.runtime.contents import Edit, edit_of

BUDGET_S = 20.0
"""Time for drawing in one session beyond which contents come back to other weights."""


@dataclass(frozen=True)
class Drawn:
    """The arguments of one call."""

    seed: int
    static_seed: int | None
    base: Arguments
    """As the seeds give them."""
    edit_seeds: tuple[int, ...] = ()
    """Of the elements that differ from ``base``, one after the other."""
    edits: tuple[Edit, ...] = ()
    """These elements."""

    @property
    def arguments(self) -> Arguments:
        """The arguments, changed elements among them; tensors are copied for these each time."""
        made = self.base
        for edit in self.edits:
            made = edit.applied(made)
        return made


class ShapesVaryError(Exception):
    """Two draws of one workload differ in shape, so that they cannot lie at one place."""


def mixed(
    operator: Operator, workload: Workload, *, seed: int, static_seed: int | None, edit_seeds: Sequence[int] = ()
) -> Arguments:
    """Draw the arguments of one call.

    Args:
        operator: The trusted spec.
        workload: Axes, dtype and law.
        seed: Of everything that changes from call to call.
        static_seed: Of the arguments that the operator declares static; None for ``seed``.
        edit_seeds: Of elements that are changed afterwards, each chosen as if it were the only one.
    """
    law = operator.laws[workload.law]
    made = law(workload.axes, workload.dtype, generator(seed))
    if static_seed is not None:
        made = _joined(operator, made, law(workload.axes, workload.dtype, generator(static_seed)))
    edits = [_edit(operator, made, one) for one in edit_seeds]
    for edit in edits:
        made = made if edit is None else edit.applied(made)
    return made


def _joined(operator: Operator, made: Arguments, static: Arguments) -> Arguments:
    chosen = static_indices(operator)
    return tuple(static[i] if i in chosen else one for i, one in enumerate(made))


def _edit(
    operator: Operator, arguments: Arguments, seed: int, largest: dict[int, torch.Tensor] | None = None
) -> Edit | None:
    """Choose one element of what may change, which a static argument does not."""
    static = static_indices(operator)
    free = tuple(None if i in static else one for i, one in enumerate(arguments))
    return edit_of(operator, free, seed, largest=largest)


def static_indices(operator: Operator) -> frozenset[int]:
    """Return the positions of the arguments whose contents may stay equal between calls."""
    return frozenset(i for i, one in enumerate(operator.inputs) if isinstance(one, Buffer) and one.static)


def same_form(one: Arguments, other: Arguments) -> bool:
    """Tell whether two sets of arguments can lie at the same places: equal shapes, dtypes, strides and numbers."""
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            if (a.shape, a.dtype, a.stride()) != (b.shape, b.dtype, b.stride()):
                return False
        elif a != b:
            return False
    return True


class Supply:
    """Draws for one workload."""

    def __init__(
        self,
        operator: Operator,
        workload: Workload,
        *,
        shared: bool,
        budget_s: float | None = None,
        example: Arguments | None = None,
    ) -> None:
        """Prepare.

        Args:
            operator: The trusted spec.
            workload: Axes, dtype and law.
            shared: One set of static arguments for all slots, as in the warm regime.
            budget_s: Time for drawing in one session beyond which contents come back; None for ``BUDGET_S``.
            example: A draw of this workload, from which sizes are read; None to make one.
        """
        self.operator, self.workload, self.shared = operator, workload, shared
        self._budget_s = BUDGET_S if budget_s is None else budget_s
        first = self._draw(secrets.randbits(62), None) if example is None else example
        static = static_indices(operator)
        self.static = tuple(i for i in sorted(static) if i < len(first) and isinstance(first[i], torch.Tensor))
        """Positions of static tensors."""
        self.moving = tuple(i for i, one in enumerate(first) if isinstance(one, torch.Tensor) and i not in static)
        """Positions of tensors with new contents in every batch."""
        self.example = first
        self._weights: list[tuple[int, Arguments]] = []
        self._pool: list[tuple[int, Arguments]] = []
        self._kept: list[tuple[int, Arguments]] = []
        self._turn = 0
        self.threads = max(1, min(16, torch.get_num_threads()))
        """Draws that are made side by side."""

    @property
    def moving_bytes(self) -> int:
        """Bytes of one slot that change."""
        return sum(_size(self.example[i]) for i in self.moving)

    @property
    def static_bytes(self) -> int:
        """Bytes of one slot that stay."""
        return sum(_size(self.example[i]) for i in self.static)

    def begin(self, slots: int, spares: int, batches: int) -> list[Drawn]:
        """Draw the static arguments of so many slots, and first contents for slots and spares.

        Args:
            slots: Number of slots.
            spares: Sets of contents that come in place of a slot's.
            batches: How many batches will be asked for; decides whether contents have to come back.

        Returns:
            ``slots + spares`` sets; those of the spares have no static part of their own.

        Raises:
            ShapesVaryError: Draws of this workload differ in shape.
        """
        began = time.monotonic()
        seeds = [secrets.randbits(62) for _ in range(slots + spares)]
        first = self._many(seeds)
        if not all(same_form(one, self.example) for _, one in first):
            raise ShapesVaryError
        self._weights = first[: 1 if self.shared else slots] if self.static else []
        cost = (time.monotonic() - began) * batches
        dear = bool(self.static) and cost > self._budget_s and (slots > 1 or self.can_be_edited)
        self._pool = self._coming_back(first, slots, cost) if dear else []
        self._turn = 1
        return self._fitted(first, slots)

    def _coming_back(self, first: list[tuple[int, Arguments]], slots: int, cost: float) -> list[tuple[int, Arguments]]:
        """Return a pool whose size shares no factor with the number of slots: pairs repeat as late as they can."""
        size = max(len(first), int(len(first) * self._budget_s / cost))
        while math.gcd(size, slots) != 1:
            size += 1
        seeds = [secrets.randbits(62) for _ in range(size - len(first))]
        return first + self._many(seeds)

    def kept(self, slots: int) -> list[Drawn]:
        """Return contents that are drawn once and come back each time, for a baseline that is tried out alone.

        Args:
            slots: How many calls.

        Raises:
            ShapesVaryError: Draws of this workload differ in shape.
        """
        self._kept += self._many([secrets.randbits(62) for _ in range(slots - len(self._kept))])
        first = self._kept[:slots]
        if not all(same_form(one, self.example) for _, one in first):
            raise ShapesVaryError
        self._weights = first[: 1 if self.shared else slots] if self.static else []
        return self._fitted(first, slots)

    def several(self, batches: int, slots: int) -> list[list[Drawn]]:
        """Return the contents of the slots of some batches, all drawn side by side."""
        if self._pool:
            return [self._from_pool(slots, slots) for _ in range(batches)]
        found = self._many([secrets.randbits(62) for _ in range(batches * slots)])
        return [self._fitted(found[at : at + slots], slots) for at in range(0, len(found), slots)]

    def _from_pool(self, slots: int, count: int) -> list[Drawn]:
        at = [(self._turn * slots + k) % len(self._pool) for k in range(count)]
        self._turn += 1
        # Each time they differ by another element: with few slots, contents and weights may well meet again.
        return [self._changed(one) or one for one in self._fitted([self._pool[i] for i in at], slots)]

    def siblings(self, drawn: Drawn, count: int) -> list[Drawn]:
        """Return so many sets of arguments that differ from a set, and from one another, by one element each.

        Raises:
            ValueError: The operator's inputs admit no such change; ``can_be_edited`` tells.
        """
        largest: dict[int, torch.Tensor] = {}
        made = [self._changed(drawn, largest) for _ in range(count)]
        found = [one for one in made if one is not None]
        if len(found) != count:
            raise ValueError(f"no element of {self.operator.name} may be changed")
        return found

    def with_copies(self, drawn: list[Drawn], copies: int) -> list[Drawn]:
        """Return what was drawn, and after it the copies of the first, of the second, and so on.

        Args:
            drawn: Sets of arguments.
            copies: How many there are to be of each, itself among them.
        """
        return drawn + [copy for one in drawn for copy in self.siblings(one, copies - 1)]

    @property
    def can_be_edited(self) -> bool:
        """Whether one element of the inputs may become another one."""
        return _edit(self.operator, self.example, 0) is not None

    def _changed(self, drawn: Drawn, largest: dict[int, torch.Tensor] | None = None) -> Drawn | None:
        seed = secrets.randbits(62)
        edit = _edit(self.operator, drawn.base, seed, largest)
        if edit is None:
            return None
        return replace(drawn, edit_seeds=(*drawn.edit_seeds, seed), edits=(*drawn.edits, edit))

    def with_weights_of(self, spare: Drawn, slot: int) -> Drawn:
        """Return a spare's contents together with the static arguments of the slot into which they are put."""
        seed, weights = self._of_slot(slot)
        arguments = spare.base if weights is None else _joined(self.operator, spare.base, weights)
        return Drawn(spare.seed, seed, arguments)

    def replacement(self, drawn: Drawn, slot: int) -> Drawn:
        """Return what comes in place of a slot's contents before a call: they themselves, but for one element.

        A single element, so that only who reads all of the input sees it; where an operator's inputs admit no such
        change, other contents altogether.

        Args:
            drawn: What is in the slot.
            slot: Its number among those that are drawn.
        """
        changed = self._changed(drawn)
        if changed is not None:
            return changed
        seed = secrets.randbits(62)
        return self.with_weights_of(Drawn(seed, None, self._draw(seed, None)), slot)

    def _of_slot(self, slot: int) -> tuple[int | None, Arguments | None]:
        if not self._weights:
            return None, None
        return self._weights[0 if self.shared else slot]

    def _fitted(self, found: Sequence[tuple[int, Arguments]], slots: int) -> list[Drawn]:
        made = [Drawn(seed, None, arguments) for seed, arguments in found]
        return [self.with_weights_of(one, k) for k, one in enumerate(made[:slots])] + made[slots:]

    def _many(self, seeds: Sequence[int]) -> list[tuple[int, Arguments]]:
        if len(seeds) < 2 or self.threads < 2 or self.moving_bytes + self.static_bytes < 1 << 16:
            return [(seed, self._draw(seed, None)) for seed in seeds]
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(lambda seed: (seed, self._draw(seed, None)), seeds))

    def _draw(self, seed: int, static_seed: int | None) -> Arguments:
        return mixed(self.operator, self.workload, seed=seed, static_seed=static_seed)


def _size(one: object) -> int:
    return one.numel() * one.itemsize if isinstance(one, torch.Tensor) else 0
