"""What is expected of every case: computed by the reference worker, held by the judge alone."""

import contextlib
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kb.validators.operators.spec import DTYPES, Operator, Workload
from kb.validators.runtime.compare import Comparison, compare_output, result_tensor
from kb.validators.runtime.errors import JudgeError
from kb.validators.runtime.launching import Launch, Output
from kb.validators.runtime.plan import Plan
from kb.validators.runtime.starting import fork, toolchain_environment


@dataclass(frozen=True)
class Expected:
    """One case."""

    arguments: tuple[dict[str, Any], ...]
    """``{"value": …}`` or ``{"tensor": {dtype, shape, strides}, "data": bytes}``."""
    outputs: tuple[torch.Tensor, ...]
    """float64 or exact."""
    scales: tuple[torch.Tensor | None, ...]


class Expectation:
    """All cases, read from the reference worker's files on demand."""

    def __init__(self, folder: Path) -> None:
        rows = json.loads((folder / "values.json").read_text(encoding="utf-8"))
        self._rows = {row["case"]: row for row in rows}
        file = folder / "values.bin"
        empty = file.stat().st_size == 0
        self._data = np.zeros(0, np.uint8) if empty else np.memmap(file, np.uint8, mode="r")

    def __len__(self) -> int:
        return len(self._rows)

    def bytes_of(self, placed: dict[str, Any]) -> bytes:
        """Return the bytes of one buffer."""
        return bytes(self._data[placed["offset"] : placed["offset"] + placed["size_bytes"]])

    def _tensor(self, placed: dict[str, Any]) -> torch.Tensor:
        dtype = DTYPES[placed["dtype"]]
        if placed["size_bytes"] == 0:
            return torch.empty(placed["shape"], dtype=dtype)
        flat = torch.frombuffer(bytearray(self.bytes_of(placed)), dtype=torch.uint8).view(dtype)
        return torch.as_strided(flat, placed["shape"], placed["strides"])

    def case(self, index: int) -> Expected:
        """Return one case by its index in the plan."""
        row = self._rows[index]
        arguments = tuple(
            {"tensor": one["tensor"], "data": self.bytes_of(one["tensor"])}
            if "tensor" in one
            else {"value": one["value"]}
            for one in row["arguments"]
        )
        return Expected(
            arguments=arguments,
            outputs=tuple(self._tensor(one) for one in row["expected"]),
            scales=tuple(None if one is None else self._tensor(one) for one in row["scales"]),
        )

    def compare(
        self, operator: Operator, workload: Workload, expected: Expected, found: Sequence[bytes]
    ) -> list[Comparison]:
        """Compare the result bytes of one call, whose sizes fit, with what is expected of it."""
        comparisons = []
        for data, want, scale, buffer in zip(found, expected.outputs, expected.scales, operator.outputs, strict=True):
            got = result_tensor(data, want, buffer=buffer, dtype=workload.dtype)
            error = operator.error_under(workload.law)
            comparisons.append(compare_output(got, want, buffer=buffer, dtype=workload.dtype, error=error, scale=scale))
        return comparisons

    def argument_bytes(self, index: int) -> int:
        """Return how much memory the inputs of one case need, in bytes, alignment left out."""
        return sum(one["tensor"]["size_bytes"] for one in self._rows[index]["arguments"] if "tensor" in one)


class ReferenceWorker:
    """The trusted process; started early, used once."""

    def __init__(self, operator: str, folder: Path) -> None:
        self.folder = folder
        given, plan_end = os.pipe()
        self._plan = os.fdopen(plan_end, "w", encoding="utf-8")
        read_end, write_end = os.pipe()
        self._output = Output(read_end)
        try:
            self._process = fork(
                "kb.validators.runtime.reference", operator, str(folder), given=given,
                launch=Launch((), write_end, toolchain_environment(), folder),
            )  # fmt: skip
        except JudgeError:
            self._plan.close()
            raise
        finally:
            os.close(given)
            os.close(write_end)

    def compute(self, plan: Plan, *, limit_s: float) -> Expectation:
        """Hand over the plan, wait for the values, and see the worker off.

        Raises:
            JudgeError: The reference failed or took too long; the candidate is not to blame.
        """
        try:
            with self._plan as channel:
                channel.write(json.dumps(plan.to_json()) + "\n")
            code = self._process.wait(timeout=limit_s)
        except (OSError, ValueError) as error:
            raise JudgeError(
                f"the reference worker of {plan.operator} is gone", "free some memory: kb doctor"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise JudgeError(f"the reference of {plan.operator} took too long", "judge fewer workloads") from error
        if code != 0:
            self._output.close()
            raise JudgeError(
                f"the reference of {plan.operator} failed: {self._output.text().strip()[-500:]}",
                "this is a fault of the operator's spec",
            )
        return Expectation(self.folder)

    def end(self) -> None:
        """End the process if it still runs."""
        with contextlib.suppress(OSError):
            self._plan.close()
        self._process.release()
        self._output.close()
