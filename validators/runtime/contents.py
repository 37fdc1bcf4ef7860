"""Draw the arguments of every case of a plan; runs in the trusted reference worker only."""

from collections.abc import Iterator

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


def edited_copy(operator: Operator, previous: Arguments, seed: int) -> Arguments | None:
    """Change one element of one floating-point input; None if there is nothing that may be changed freely."""
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
    if not free or operator.exact:
        return None
    made = [copied(one) for one in previous]
    index, _ = free[int(torch.randint(len(free), (1,), generator=dice))]
    chosen = made[index]
    if not isinstance(chosen, torch.Tensor):
        return None
    flat = int(torch.randint(chosen.numel(), (1,), generator=dice))
    place = tuple(int(i) for i in np.unravel_index(flat, chosen.shape))  # torch's imports sympy, for a second
    # The largest magnitude, with the other sign: a value of the input's own scale that no rounding can hide.
    largest = chosen.reshape(-1)[int(torch.nan_to_num(chosen.to(torch.float64)).abs().argmax())]
    chosen[place] = -largest if float(chosen[place]) == float(largest) else largest
    return tuple(made)
