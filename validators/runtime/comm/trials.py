"""What each rank is given and what is expected of it, case by case: drawn and computed in the judge alone."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from kb.validators.operators.spec import UNIT_ROUNDOFF, Arguments, Operator, Wire, Workload, generator, itemsize
from kb.validators.runtime.compare import Comparison, compare_output, result_tensor
from kb.validators.runtime.contents import copied, edited_copy
from kb.validators.runtime.expectation import Expectation, Expected
from kb.validators.runtime.plan import EDITED, REPEATED, Case, Plan
from kb.validators.runtime.reference import DTYPE_NAMES, storage

Members = tuple[int, ...]


@dataclass(frozen=True)
class Trial:
    """One case, for all ranks that take part in it."""

    members: Members
    """Ranks of the job, in ascending order: rank i of the group is ``members[i]``."""
    shares: tuple[Expected, ...]
    """What each of them gets and should return."""
    least: Wire
    """Traffic that a scheme cannot avoid, in bytes, at the precision that it declares."""


class Trials:
    """All cases of a plan."""

    def __init__(self, operator: Operator, plan: Plan, *, world_size: int, wire: str | None) -> None:
        self._operator, self._plan, self._wire = operator, plan, wire
        self._trials: dict[int, Trial] = {}
        before: dict[int, tuple[Arguments, ...]] = {}
        for case in plan.cases:
            workload = plan.workloads[case.workload]
            given = self._draw(workload, case, before.get(case.workload))
            before[case.workload] = given
            members = _members(case, workload.axes["world_size"], world_size)
            self._trials[case.index] = Trial(members, self._shares(workload, given), self._least(workload, given))

    def __getitem__(self, index: int) -> Trial:
        return self._trials[index]

    def of_rank(self, rank: int) -> "Share":
        """Return what concerns one rank of the job."""
        mine = {
            index: trial.shares[trial.members.index(rank)]
            for index, trial in self._trials.items()
            if rank in trial.members
        }
        return Share(mine, rounded=self._wire is not None)

    def _draw(self, workload: Workload, case: Case, before: tuple[Arguments, ...] | None) -> tuple[Arguments, ...]:
        if before is not None and case.contents == REPEATED:
            return tuple(tuple(copied(one) for one in rank) for rank in before)
        if before is not None and case.contents == EDITED:
            dice = random.Random(case.seed)  # noqa: S311 - repeatable from the master seed
            for rank in dice.sample(range(len(before)), len(before)):
                edited = edited_copy(self._operator, before[rank], case.seed)
                if edited is not None:
                    return tuple(
                        edited if place == rank else tuple(copied(one) for one in old)
                        for place, old in enumerate(before)
                    )
        law = self._operator.laws[workload.law]
        return cast(tuple[Arguments, ...], law(workload.axes, workload.dtype, generator(case.seed)))

    def _shares(self, workload: Workload, given: tuple[Arguments, ...]) -> tuple[Expected, ...]:
        operator = self._operator
        outputs = operator.reference(*given)
        scales = operator.condition(*given) if operator.condition else tuple(one.abs() for one in outputs)
        if self._wire is not None and operator.lossy is not None:
            unit = max(operator.error.c_acc, 1.0) * UNIT_ROUNDOFF[operator.error.accumulate]
            more = operator.lossy(UNIT_ROUNDOFF[self._wire], *given)
            scales = tuple(scale + far / unit for scale, far in zip(scales, more, strict=True))
        count = len(operator.outputs)
        return tuple(
            Expected(
                tuple(_argument(one) for one in arguments),
                outputs[rank * count : (rank + 1) * count],
                scales[rank * count : (rank + 1) * count],
            )
            for rank, arguments in enumerate(given)
        )

    def _least(self, workload: Workload, given: tuple[Arguments, ...]) -> Wire:
        if self._operator.wire is None:
            raise ValueError(f"{self._operator.name} says nothing of its traffic")
        dense = self._operator.wire(*given)
        if self._wire is None or itemsize(self._wire) >= itemsize(workload.dtype):
            return dense
        full, narrow = itemsize(workload.dtype), itemsize(self._wire)

        def scaled(size: int) -> int:
            return size * narrow // full

        return Wire(tuple(map(scaled, dense.sent)), tuple(map(scaled, dense.received)), scaled(dense.total))


def _members(case: Case, size: int, world_size: int) -> Members:
    """Choose who takes part: a group need neither begin with rank 0 nor be without gaps."""
    dice = random.Random(f"{case.seed} members")  # noqa: S311 - repeatable from the master seed
    return tuple(sorted(dice.sample(range(world_size), size)))


def _argument(one: object) -> dict[str, Any]:
    if not isinstance(one, torch.Tensor):
        return {"value": one}
    data = storage(one)
    return {
        "tensor": {
            "dtype": DTYPE_NAMES[one.dtype], "shape": list(one.shape), "strides": list(one.stride()),
            "offset": 0, "size_bytes": len(data),
        },
        "data": data,
    }  # fmt: skip


class Share(Expectation):
    """What one rank is given and should return, in the form that a conversation with it goes by."""

    def __init__(self, cases: dict[int, Expected], *, rounded: bool) -> None:
        self._cases = cases
        self._rounded = rounded

    def __len__(self) -> int:
        return len(self._cases)

    def case(self, index: int) -> Expected:
        """Return one case by its index in the plan."""
        return self._cases[index]

    def argument_bytes(self, index: int) -> int:
        """Return how much memory the inputs of one case need, in bytes; 0 if this rank has no part in it."""
        if index not in self._cases:
            return 0
        return sum(one["tensor"]["size_bytes"] for one in self._cases[index].arguments if "tensor" in one)

    def compare(
        self, operator: Operator, workload: Workload, expected: Expected, found: Sequence[bytes]
    ) -> list[Comparison]:
        """Compare the result bytes of one call, whose sizes fit, with what is expected of it."""
        if not self._rounded:
            return super().compare(operator, workload, expected, found)
        # What was rounded on the wire is exact under no law; its bound is in the scales, in units of c_acc.
        known = operator.error
        error = replace(known, c_acc=max(known.c_acc, 1.0), c_out=max(known.c_out, 1.0))
        return [
            compare_output(
                result_tensor(data, want, buffer=buffer, dtype=workload.dtype), want, buffer=buffer,
                dtype=workload.dtype, error=error, scale=scale,
            )
            for data, want, scale, buffer in zip(
                found, expected.outputs, expected.scales, operator.outputs, strict=True
            )
        ]  # fmt: skip
