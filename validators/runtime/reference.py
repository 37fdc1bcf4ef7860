"""The reference worker: a trusted process that draws inputs and computes what is expected, then exits.

It is started before the plan exists, so that importing torch costs no time later, and it is gone before the first
call of the candidate. Results lie in a folder that only the judge can read.
"""

import json
import sys
from pathlib import Path
from typing import Any, BinaryIO

import torch

from kb.validators import operators
from kb.validators.operators.spec import Workload
from kb.validators.runtime.arena import span_bytes
from kb.validators.runtime.contents import draw_arguments
from kb.validators.runtime.plan import Case, Plan

DTYPE_NAMES = {dtype: name for name, dtype in operators.spec.DTYPES.items()}


def plan_from(raw: dict[str, Any]) -> Plan:
    """Read a plan from its plain form."""
    workloads = tuple(Workload(**one) for one in raw["workloads"])
    return Plan(raw["operator"], workloads, tuple(Case(**one) for one in raw["cases"]))


def storage(tensor: torch.Tensor) -> bytes:
    """Return the bytes of the storage that a view spans, gaps included."""
    size = span_bytes(tensor.shape, tensor.stride(), tensor.itemsize)
    if size == 0:
        return b""
    flat = torch.as_strided(tensor, (size // tensor.itemsize,), (1,), tensor.storage_offset()).contiguous()
    return bytes(flat.view(torch.uint8).numpy())


class _Writer:
    """Appends buffers to one file and remembers where they are."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.offset = 0

    def put(self, tensor: torch.Tensor) -> dict[str, Any]:
        data = storage(tensor)
        self.file.write(data)
        placed = {
            "dtype": DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "strides": list(tensor.stride()),
            "offset": self.offset,
            "size_bytes": len(data),
        }
        self.offset += len(data)
        return placed


def compute(plan: Plan, folder: Path) -> None:
    """Write ``values.bin`` and ``values.json``: inputs, expected results and condition scales of every case."""
    operator = operators.load(plan.operator)
    rows = []
    with (folder / "values.bin").open("wb") as file:
        writer = _Writer(file)
        for case, arguments in draw_arguments(operator, plan):
            expected = operator.reference(*arguments)
            scales = operator.condition(*arguments) if operator.condition else (None,) * len(expected)
            rows.append(
                {
                    "case": case.index,
                    "arguments": [
                        {"tensor": writer.put(one)} if isinstance(one, torch.Tensor) else {"value": one}
                        for one in arguments
                    ],
                    "expected": [writer.put(one.contiguous()) for one in expected],
                    "scales": [
                        None if one is None else writer.put(one.to(torch.float64).expand(want.shape).contiguous())
                        for one, want in zip(scales, expected, strict=True)
                    ],
                }
            )
    (folder / "values.json").write_text(json.dumps(rows, allow_nan=True), encoding="utf-8")


def main() -> None:
    """Import everything, say so, wait for the plan on standard input, compute, and exit."""
    operators.load(sys.argv[1])
    torch.set_num_threads(1)
    print("ready", flush=True)  # noqa: T201 - the judge waits for this line
    raw = json.loads(sys.stdin.readline())
    compute(plan_from(raw), Path(sys.argv[2]))
    print("done", flush=True)  # noqa: T201 - likewise


if __name__ == "__main__":
    main()
