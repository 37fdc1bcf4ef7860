"""What came out of timed calls, looked at: every output against the baseline's, chosen ones against the reference.

Both sides get the same contents, so an output of a timed call of the candidate has a counterpart that a trusted library
computed. All are looked at where that is little, else a part that is chosen after the batch. The comparison is coarse:
it finds work that was left out or belongs to other contents. Chosen calls, and every call whose outputs are far from
their counterparts, are compared with the float64 reference under the operator's error bound, which alone decides.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from kb.validators.operators.spec import DTYPES, UNIT_ROUNDOFF, Operator, Workload
from kb.validators.runtime import replies, report
from kb.validators.runtime.arena import aligned
from kb.validators.runtime.assessing import ArbiterProcess
from kb.validators.runtime.compare import Comparison, compare_call
from kb.validators.runtime.supply import Drawn

_LEAST_NORM = 1e-12
"""Of numbers whose squares float32 still holds."""

BUDGET_S = 10.0
"""Time for comparisons with the reference in one session, beyond those that are always made."""


@dataclass(frozen=True)
class Problem:
    """Why a timed call is not accepted."""

    reason: str
    detail: str
    call: int = 0
    values: bool = False
    """Whether it comes from comparing values; else the form of the result is at fault."""


@dataclass(frozen=True)
class Result:
    """The outputs of one call, as they were handed over."""

    claims: tuple[replies.Claim, ...]
    data: tuple[bytes, ...]

    @property
    def size_bytes(self) -> int:
        """Shared memory that all outputs take, in bytes."""
        return sum(aligned(len(one)) for one in self.data)


def tensor_of(claim: replies.Claim, data: bytes) -> torch.Tensor:
    """Return the tensor that bytes are, by dtype and shape of a claim that was checked."""
    dtype = DTYPES[claim.dtype]
    if not data:
        return torch.empty(claim.shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(claim.shape)


def form_problem(operator: Operator, workload: Workload, found: Result, kind: str) -> Problem | None:
    """Tell what is wrong with the form of a call's outputs: their number, type, dtype, device or size."""
    if len(found.claims) != len(operator.outputs):
        return Problem("wrong_shape", f"{len(operator.outputs)} results were expected, got {len(found.claims)}")
    for claim, buffer in zip(found.claims, operator.outputs, strict=True):
        wanted = workload.dtype if buffer.dtype == "data" else buffer.dtype
        if not claim.plain or not claim.is_tensor:
            shown = report.escaped(claim.kind, 60)
            code = "lazy_result" if claim.is_tensor else "wrong_dtype"
            return Problem(code, f"{buffer.name}: no plain tensor but {shown}")
        if claim.device != kind or claim.dtype != wanted:
            shown = report.escaped(f"{claim.dtype} on {claim.device}", 60)
            return Problem("wrong_dtype", f"{buffer.name}: expected {wanted} on {kind}, got {shown}")
    for claim, data in zip(found.claims, found.data, strict=True):
        size = DTYPES[claim.dtype].itemsize
        for axis in claim.shape:
            size *= axis
        if size != len(data):
            return Problem("forged_protocol", "a result of the wrong size")
    return None


def alike(operator: Operator, workload: Workload, found: Result, counterpart: Result) -> bool:
    """Tell whether two honest implementations could have computed both from equal contents; coarse."""
    error = operator.error
    operand = UNIT_ROUNDOFF[error.operand] if error.operand is not None else 0.0
    for mine, theirs, a, b in zip(found.claims, counterpart.claims, found.data, counterpart.data, strict=True):
        if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            return False
        if a == b:
            continue
        one, other = tensor_of(mine, a), tensor_of(theirs, b)
        if not one.is_floating_point():
            return False
        limit = 64 * UNIT_ROUNDOFF[error.accumulate] + 4 * max(operand, UNIT_ROUNDOFF.get(mine.dtype, 0.0))
        if not _near(one.to(torch.float32), other.to(torch.float32), min(limit, 0.25)):
            return False
    return True


def _near(one: torch.Tensor, other: torch.Tensor, limit: float) -> bool:
    """Compare in the Frobenius norm, finite parts alone; the rest has to be equal."""
    # Where everything is finite and of an ordinary size, float32 is enough for a coarse look, and five times as fast.
    size, apart = float(torch.linalg.vector_norm(other)), float(torch.linalg.vector_norm(one - other))
    if math.isfinite(size) and math.isfinite(apart) and size > _LEAST_NORM:
        return apart <= limit * size
    finite = torch.isfinite(one)
    if not bool((finite == torch.isfinite(other)).all()):
        return False
    a, b = (torch.where(finite, part, 0).to(torch.float64) for part in (one, other))
    return float((a - b).norm()) <= limit * float(b.norm()) + 1e-30


class Scrutiny:
    """The judge of timed calls of one workload."""

    def __init__(
        self,
        operator: Operator,
        workload: Workload,
        *,
        kind: str,
        arbiter: ArbiterProcess | None = None,
        budget_s: float | None = None,
    ) -> None:
        """Prepare.

        Args:
            operator: The trusted spec.
            workload: Axes, dtype and law.
            kind: ``cpu`` or ``cuda``.
            arbiter: Computes on the device what is too large for here; None to compute in this process.
            budget_s: Time for comparisons with the reference that need not be made; None for ``BUDGET_S``.
        """
        self._budget_s = BUDGET_S if budget_s is None else budget_s
        self.operator, self.workload, self.kind, self.arbiter = operator, workload, kind, arbiter
        self.checked = 0
        self._spent_s = 0.0

    def problem(
        self,
        drawn: Sequence[Drawn],
        found: Mapping[int, Result],
        counterparts: Mapping[int, Result],
        *,
        chosen: Sequence[int],
        always: Sequence[int],
    ) -> Problem | None:
        """Look at the outputs of one batch.

        Args:
            drawn: What each call was given.
            found: What calls of the candidate returned, by position in the batch.
            counterparts: What the same calls of the baseline returned.
            chosen: Calls to compare with the reference while there is time.
            always: Calls to compare with it at any rate.

        Returns:
            The first reason to reject, with the call that it was found in; None if all is right.
        """
        for index, one in found.items():
            wrong = form_problem(self.operator, self.workload, one, self.kind)
            if wrong is not None:
                return replace(wrong, call=index)
        far = [i for i, one in found.items() if not alike(self.operator, self.workload, one, counterparts[i])]
        wanted = list(always) + far[:8]
        if self._spent_s < self._budget_s:
            wanted += [one for one in chosen if one not in wanted]
        for index in dict.fromkeys(wanted):
            bad = self.exact(drawn[index], found[index])
            if bad is not None:
                return replace(bad, call=index)
        return None

    def exact(self, drawn: Drawn, found: Result) -> Problem | None:
        """Compare one call with the float64 reference."""
        began = time.monotonic()
        comparisons = self._compared(drawn, found)
        self._spent_s += time.monotonic() - began
        self.checked += 1
        bad = next((one for one in comparisons if one.verdict != "passed"), None)
        return None if bad is None else Problem(bad.verdict, bad.detail, values=True)

    def _compared(self, drawn: Drawn, found: Result) -> Sequence[Comparison]:
        if self.arbiter is not None:
            seeds = {"seed": drawn.seed, "static_seed": drawn.static_seed, "edit_seeds": list(drawn.edit_seeds)}
            return self.arbiter.check(self.workload, found.data, drawn=seeds)
        actual = tuple(tensor_of(claim, data) for claim, data in zip(found.claims, found.data, strict=True))
        return compare_call(self.operator, drawn.arguments, actual, dtype=self.workload.dtype, law=self.workload.law)
