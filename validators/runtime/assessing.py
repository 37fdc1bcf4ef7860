"""The judge's handle on the arbiter, and expectations that lie partly in files, partly with it."""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kb.validators.operators.spec import DTYPES, Operator, Workload
from kb.validators.runtime import accelerator
from kb.validators.runtime.arena import Arena, aligned
from kb.validators.runtime.compare import Comparison
from kb.validators.runtime.errors import JudgeError
from kb.validators.runtime.expectation import Expectation, Expected
from kb.validators.runtime.plan import Plan
from kb.validators.runtime.starting import boot_command

EXCHANGE_BYTES = 16 << 30
"""Region shared with the arbiter; only touched pages cost anything."""

Pause = Callable[[bool], None]
"""Stops the candidate's processes (True) or lets them go on (False)."""


class ArbiterProcess:
    """The trusted process that computes and compares on the device; the candidate stands still meanwhile.

    On a machine without one, ``cpu`` does the same on the processor.
    """

    def __init__(self, operator: str, device: str, *, pause: Pause) -> None:
        self.pause = pause
        self.fell_back: list[str] = []
        """Why comparisons were computed on the CPU instead, which takes long: one each."""
        self.exchange = Arena(EXCHANGE_BYTES)
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            boot_command("kb.validators.runtime.arbiter", operator, str(self.exchange.descriptor)),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            pass_fds=(self.exchange.descriptor,), env=accelerator.trusted_environment(device),
        )  # fmt: skip
        if not self._line().get("device") and device != accelerator.CPU:
            self.end()
            raise JudgeError(f"the arbiter sees no {device}", "nvidia-smi; kb doctor")

    def ask(self, **message: Any) -> dict[str, Any]:  # noqa: ANN401 - plain JSON values
        """Ask, with the candidate stopped.

        Raises:
            JudgeError: The arbiter failed; the candidate is not to blame.
        """
        self.pause(True)
        try:
            if self._process.stdin is None:
                raise JudgeError("the arbiter has no input", "report this")
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
            return self._line()
        except OSError as error:
            raise JudgeError("the arbiter is gone", "free some memory: kb doctor") from error
        finally:
            self.pause(False)

    def _line(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            raise JudgeError("the arbiter ended", "free some memory: kb doctor")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise JudgeError(f"the arbiter failed: {found['error']}", "this is a fault of the operator's spec")
        return found

    def begin(self, plan: Plan) -> None:
        """Hand over the plan whose cases ``following`` then brings."""
        self.ask(op="begin", plan=plan.to_json())

    def following(self) -> tuple[int, Expected]:
        """Return the next case of the plan; its outputs are shapes without contents."""
        reply = self.ask(op="next")
        outputs = tuple(
            torch.empty(one["shape"], dtype=DTYPES[one["dtype"]], device="meta") for one in reply["outputs"]
        )
        return reply["case"], Expected(self._arguments(reply), outputs, (None,) * len(outputs))

    def draw(self, workload: Workload, seed: int) -> tuple[dict[str, Any], ...]:
        """Draw one set of arguments for a batch, in the form of ``Expected.arguments``."""
        return self._arguments(self.ask(op="draw", workload=_plain(workload), seed=seed))

    def _arguments(self, reply: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        found: list[dict[str, Any]] = []
        for one in reply["arguments"]:
            if "tensor" in one:
                place = one["tensor"]
                found.append({"tensor": place, "data": self.exchange.read(place["offset"], place["size_bytes"])})
            else:
                found.append(one)
        return tuple(found)

    def check(
        self, workload: Workload, found: Sequence[bytes], *, drawn: Mapping[str, Any] | None = None
    ) -> list[Comparison]:
        """Compare raw result bytes with what is expected of the last case, or of arguments that were drawn for a batch.

        Args:
            workload: Axes, dtype and law.
            found: The bytes of each result.
            drawn: ``seed``, ``static_seed`` and ``edit_seeds`` of the arguments, as ``supply.mixed`` takes them.
        """
        offset, rows = 0, []
        for data in found:
            self.exchange.write(offset, data)
            rows.append({"offset": offset, "size_bytes": len(data)})
            offset = aligned(offset + len(data))
        reply = self.ask(op="check", workload=_plain(workload), outputs=rows, **(drawn or {}))
        if reply["where"] == "cpu":
            self.fell_back.append(str(reply.get("why", "")))
        return [Comparison(one["verdict"], one["max_normalised"], one["detail"]) for one in reply["comparisons"]]

    def end(self) -> None:
        """End the process and give its memory back."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
        self.exchange.close()


def _plain(workload: Workload) -> dict[str, Any]:
    return {**vars(workload), "axes": dict(workload.axes)}


class DeviceExpectation(Expectation):
    """Small cases from the reference worker's files, large ones from the arbiter, one at a time and in order."""

    def __init__(self, small: Expectation, arbiter: ArbiterProcess, plan: Plan, large: frozenset[int]) -> None:
        self._small, self._arbiter, self._plan, self._large = small, arbiter, plan, large
        self._current: tuple[int, Expected] | None = None
        arbiter.begin(plan.only(large))

    def case(self, index: int) -> Expected:
        """Return one case; large ones must be asked for in the plan's order."""
        if self._plan.cases[index].workload not in self._large:
            return self._small.case(index)
        if self._current is None or self._current[0] != index:
            self._current = self._arbiter.following()
        if self._current[0] != index:
            raise JudgeError(f"case {index} was asked for out of order", "report this")
        return self._current[1]

    def argument_bytes(self, index: int) -> int:
        """Return how much memory the inputs of one case need, as far as that is known before it is drawn."""
        return 0 if self._plan.cases[index].workload in self._large else self._small.argument_bytes(index)

    def compare(
        self, operator: Operator, workload: Workload, expected: Expected, found: Sequence[bytes]
    ) -> list[Comparison]:
        """Compare one call's results; those of a large case by the arbiter."""
        if self._current is not None and expected is self._current[1]:
            return self._arbiter.check(workload, found)
        return self._small.compare(operator, workload, expected, found)
