"""The arbiter: a trusted process that draws and judges large workloads on the device, next to a stopped candidate.

It holds what is expected in its own memory; the judge hands it raw bytes, and gets numbers back. The comparison is the
one of ``compare``. It shares one region with the judge, which no candidate can see; it never holds a worker's channel.
"""

import gc
import json
import mmap
import sys
from collections.abc import Iterator
from typing import Any

import torch

from kb.validators import operators
from kb.validators.operators.spec import Arguments, Operator, Workload, generator
from kb.validators.runtime.arena import aligned
from kb.validators.runtime.compare import compare_output, result_tensor
from kb.validators.runtime.contents import draw_arguments
from kb.validators.runtime.plan import Case, Plan
from kb.validators.runtime.reference import DTYPE_NAMES, plan_from, storage
from kb.validators.runtime.supply import mixed


class Arbiter:
    """Draws arguments and compares results."""

    def __init__(self, operator: Operator, memory: mmap.mmap) -> None:
        self.operator = operator
        self.memory = memory
        self.plan: Plan | None = None
        self.cases: Iterator[tuple[Case, Arguments]] = iter(())
        self.arguments: Arguments = ()
        self.expected: tuple[torch.Tensor, ...] = ()
        self.scales: tuple[torch.Tensor | None, ...] = ()
        self.where = self.why = ""

    def begin(self, message: dict[str, Any]) -> dict[str, Any]:
        """Take a plan; its cases come one by one, in order."""
        self.plan = plan_from(message["plan"])
        self.cases = draw_arguments(self.operator, self.plan)
        return {}

    def following(self, _message: dict[str, Any]) -> dict[str, Any]:
        """Draw the plan's next case, compute what is expected, and put the inputs into the shared region."""
        case, self.arguments = next(self.cases)
        self._compute()
        return {"case": case.index, "arguments": self._write(), "outputs": [self._meta(one) for one in self.expected]}

    def draw(self, message: dict[str, Any]) -> dict[str, Any]:
        """Draw one set of arguments of a workload by its seed, for a batch; nothing is computed yet."""
        workload = Workload(**message["workload"])
        self.arguments = self.operator.laws[workload.law](workload.axes, workload.dtype, generator(message["seed"]))
        self.expected = ()
        return {"arguments": self._write()}

    def check(self, message: dict[str, Any]) -> dict[str, Any]:
        """Compare results that lie in the shared region.

        With a ``seed``, the arguments are drawn again and the expectation is computed now: so the judge can choose
        after a batch which of its outputs it looks at.
        """
        workload = Workload(**message["workload"])
        if "seed" in message:
            self.arguments = mixed(
                self.operator, workload, seed=message["seed"], static_seed=message.get("static_seed"),
                edit_seeds=message.get("edit_seeds", ()),
            )  # fmt: skip
            self._compute()
        rows = []
        for which, (raw, want) in enumerate(zip(message["outputs"], self.expected, strict=True)):
            data = self.memory[raw["offset"] : raw["offset"] + raw["size_bytes"]]
            buffer = self.operator.outputs[which]
            got = result_tensor(data, want, buffer=buffer, dtype=workload.dtype)
            scale = self.scales[which]
            device = "cuda" if self.where == "device" and got is not None else "cpu"
            found = compare_output(
                None if got is None else got.to(device), want.to(device), buffer=buffer, dtype=workload.dtype,
                error=self.operator.error_under(workload.law), scale=None if scale is None else scale.to(device),
            )  # fmt: skip
            rows.append({"verdict": found.verdict, "max_normalised": found.max_normalised, "detail": found.detail})
        self._release()
        return {"comparisons": rows, "where": self.where, "why": self.why}

    def _compute(self) -> None:
        """Compute on the device; where the reference cannot run there, or has no room, on the CPU."""
        try:
            moved = tuple(one.cuda() if isinstance(one, torch.Tensor) else one for one in self.arguments)
            self._keep(moved)
            self.where, self.why = "device", ""
        except (RuntimeError, TypeError, AssertionError) as error:
            self.why = f"{type(error).__name__}: {error}"[:200]
            self._release()
            self._keep(self.arguments)
            self.where = "cpu"
        self._release()

    def _keep(self, arguments: Arguments) -> None:
        expected = self.operator.reference(*arguments)
        scales = self.operator.condition(*arguments) if self.operator.condition else (None,) * len(expected)
        self.expected = tuple(one.cpu() for one in expected)
        self.scales = tuple(None if one is None else one.to(torch.float64).cpu() for one in scales)

    def _release(self) -> None:
        gc.collect()
        torch.cuda.empty_cache()

    def _write(self) -> list[dict[str, Any]]:
        offset = 0
        rows: list[dict[str, Any]] = []
        for one in self.arguments:
            if not isinstance(one, torch.Tensor):
                rows.append({"value": one})
                continue
            data = storage(one)
            self.memory[offset : offset + len(data)] = data
            rows.append({"tensor": self._meta(one) | {"offset": offset, "size_bytes": len(data)}})
            offset = aligned(offset + len(data))
        return rows

    def _meta(self, one: torch.Tensor) -> dict[str, Any]:
        return {"dtype": DTYPE_NAMES[one.dtype], "shape": list(one.shape), "strides": list(one.stride())}


def main() -> None:
    """Serve the judge, one JSON object a line, until it closes the pipe."""
    memory = mmap.mmap(int(sys.argv[2]), 0)
    arbiter = Arbiter(operators.load(sys.argv[1]), memory)
    handlers = {"begin": arbiter.begin, "next": arbiter.following, "draw": arbiter.draw, "check": arbiter.check}
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    print(json.dumps({"device": torch.cuda.is_available()}), flush=True)  # noqa: T201 - the judge reads lines
    for line in sys.stdin:
        message = json.loads(line)
        try:
            reply = handlers[message["op"]](message)
        except Exception as error:  # noqa: BLE001 - a spec that fails is the judge's own failure, and it says which
            reply = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(reply), flush=True)  # noqa: T201 - likewise
