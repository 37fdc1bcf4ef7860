"""Draw the arguments of every case of a plan; runs in the trusted reference worker only."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from kb.validators.operators.spec import Arguments, Buffer, Operator, Workload, generator
from kb.validators.runtime.arena import span_bytes
from kb.validators.runtime.plan import EDITED, REPEATED, SAME_WEIGHTS, Case, Plan


def draw_arguments(operator: Operator, plan: Plan) -> Iterator[tuple[Case, Arguments]]:
    """Yield the arguments of each case, in the plan's order.

    Args:
        operator: The trusted spec; its laws draw on the CPU.
        plan: The frozen plan.

    Yields:
        (case, arguments); later cases never share memory with earlier ones.
    """
    before: dict[int, Arguments] = {}
    for case in plan.cases:
        workload = plan.workloads[case.workload]
        made = _draw(operator, workload, case, before.get(case.workload))
        before[case.workload] = made
        yield case, made


def _draw(operator: Operator, workload: Workload, case: Case, previous: Arguments | None) -> Arguments:
    if previous is not None and case.contents == REPEATED:
        return tuple(copied(one) for one in previous)
    if previous is not None and case.contents == EDITED:
        edited = edited_copy(operator, previous, case.seed)
        if edited is not None:
            return edited
    made = operator.laws[workload.law](workload.axes, workload.dtype, generator(case.seed))
    if previous is not None and case.contents == SAME_WEIGHTS:
        static = [isinstance(one, Buffer) and one.static for one in operator.inputs]
        same = all(_alike(a, b) for a, b, keep in zip(made, previous, static, strict=False) if keep)
        if same:
            return tuple(
                copied(old) if keep else new for new, old, keep in zip(made, previous, static, strict=False)
            ) + tuple(made[len(static) :])
    return made


def copied(argument: object) -> object:
    """Copy a tensor with its strides, zero ones too, and with what lies in the gaps."""
    if not isinstance(argument, torch.Tensor):
        return argument
    span = span_bytes(argument.shape, argument.stride(), argument.itemsize) // argument.itemsize
    flat = torch.as_strided(argument, (span,), (1,), argument.storage_offset()).clone()
    return torch.as_strided(flat, argument.shape, argument.stride())


def _alike(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and one.stride() == other.stride()
    return type(one) is type(other)


@dataclass(frozen=True)
class Edit:
    """One element of one input, and what it becomes."""

    index: int
    """Position of the argument."""
    place: tuple[int, ...]
    """Of the element in it."""
    value: torch.Tensor
    """Its new value, [1], in the argument's dtype."""
    offset: int
    """Where the element begins in the argument's storage, in bytes."""

    @property
    def data(self) -> bytes:
        """The new value's bytes."""
        return bytes(self.value.view(torch.uint8).numpy())

    def applied(self, arguments: Arguments) -> Arguments:
        """Return the arguments with the element changed in a copy of its tensor; the others are the same objects."""
        chosen = copied(arguments[self.index])
        if isinstance(chosen, torch.Tensor):
            chosen[self.place] = self.value[0]
        return tuple(chosen if i == self.index else one for i, one in enumerate(arguments))


def edit_of(
    operator: Operator, previous: Arguments, seed: int, *, largest: dict[int, torch.Tensor] | None = None
) -> Edit | None:
    """Choose one element of one floating-point input, and another value; None if nothing may be changed freely.

    Args:
        operator: The trusted spec.
        previous: The arguments as they are; what must not be changed may be None.
        seed: Of the choice.
        largest: By position, the largest magnitude, [1]; filled in, so that many edits of the same arguments look for
            it once.
    """
    if operator.exact:
        return None
    dice = generator(seed)
    free = [
        (index, value)
        for index, (declared, value) in enumerate(zip(operator.inputs, previous, strict=False))
        if isinstance(declared, Buffer)
        and declared.dtype == "data"
        and not declared.static
        and isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.itemsize >= 2
        and value.numel() > 1
    ]
    if not free:
        return None
    index, chosen = free[int(torch.randint(len(free), (1,), generator=dice))]
    flat = int(torch.randint(chosen.numel(), (1,), generator=dice))
    place = tuple(int(i) for i in np.unravel_index(flat, chosen.shape))  # torch's imports sympy, for a second
    known = {} if largest is None else largest
    if index not in known:
        # Where a law draws -inf on purpose, +inf may be outside of what the operator takes.
        known[index] = torch.nan_to_num(chosen.abs(), nan=0.0, posinf=0.0).max().reshape(1)
    # The largest finite magnitude, with either sign: a value of the input's own scale that no rounding can hide.
    value = -known[index] if float(chosen[place]) == float(known[index]) else known[index]
    offset = sum(at * stride for at, stride in zip(place, chosen.stride(), strict=True)) * chosen.itemsize
    return Edit(index, place, value, offset)


def edited_copy(operator: Operator, previous: Arguments, seed: int) -> Arguments | None:
    """Change one element of one floating-point input; None if there is nothing that may be changed freely."""
    edit = edit_of(operator, previous, seed)
    return None if edit is None else edit.applied(tuple(copied(one) for one in previous))
