"""The build step on a GPU: load the candidate and call it once a workload on contents that nobody judges.

Kernels are compiled when they are first launched, and compilers are processes. They may be started in this step alone:
afterwards the judge refuses every new process, from outside the worker. The seed of what is judged is drawn later.
"""

import secrets
from collections.abc import Sequence
from typing import Any

import torch

from kb.validators.operators.spec import Arguments, Operator, Workload, generator
from kb.validators.runtime import replies
from kb.validators.runtime.arena import Arena, Placed, aligned
from kb.validators.runtime.errors import JudgeError
from kb.validators.runtime.reference import DTYPE_NAMES, storage
from kb.validators.runtime.worker import Worker

HEAVY_BYTES, HEAVY_FLOPS = 32 << 20, 2_000_000_000
"""From here on a workload's values are computed on the device, and it is warmed up with one draw instead of two."""


_DRAWS = 8
"""Draws of a small workload in which a scalar's values are looked for: a kernel may be compiled for each."""


def heavy(operator: Operator, workload: Workload) -> bool:
    """Tell whether the reference of a workload belongs on the device."""
    cost = operator.cost(workload.axes, workload.dtype)
    return cost.essential_bytes > HEAVY_BYTES or cost.flops > HEAVY_FLOPS


def open_step(worker: Worker) -> None:
    """Let compilers be started, and prove that nothing else can be.

    Raises:
        JudgeError: The sandbox does not hold.
        WorkerEndedError: The worker is gone.
    """
    worker.open_build()
    if worker.ask({"op": "exec"}, limit_s=30).get("refused") is not True:
        raise JudgeError("a program that is no compiler can be started in the sandbox", "judge on Linux with Landlock")
    worker.layers.setdefault("verified", {})["exec"] = True


def warm_up(
    worker: Worker, arena: Arena, operator: Operator, workloads: Sequence[Workload], *, limit_s: float
) -> str | None:
    """Call the candidate on throwaway contents of every workload, and of every value of scalars that a law draws.

    Returns:
        What the candidate raised, made safe to show; None if every call came back.

    Raises:
        WorkerEndedError: The worker ended or was too slow.
    """
    for which, workload in enumerate(workloads):
        called, known = (1 if heavy(operator, workload) else 2), set()
        for slot in range(called if called == 1 else _DRAWS):
            drawn = operator.laws[workload.law](workload.axes, workload.dtype, generator(secrets.randbits(62)))
            scalars = tuple(one for one in drawn if not isinstance(one, torch.Tensor))
            if slot >= called and scalars in known:
                continue
            known.add(scalars)
            message, after = throwaway(arena, drawn, home=f"{which}.{slot}")
            room = 2 * operator.cost(workload.axes, workload.dtype).essential_bytes + 4096
            reply = worker.ask({**message, "op": "call", "offset": after, "room": room}, limit_s=limit_s)
            failed = replies.failure(reply)
            if failed is not None:
                return failed
    return None


def throwaway(arena: Arena, drawn: Arguments, *, home: str) -> tuple[dict[str, Any], int]:
    """Write arguments to the start of the arena; returns the message's arguments and the first free offset.

    Raises:
        JudgeError: They do not fit.
    """
    offset = 0
    arguments: list[dict[str, Any]] = []
    for number, one in enumerate(drawn):
        if not isinstance(one, torch.Tensor):
            arguments.append({"value": one})
            continue
        data = storage(one)
        if offset + len(data) > arena.size_bytes // 2:
            raise JudgeError(f"the inputs need more than {arena.size_bytes >> 21} MiB", "judge smaller workloads")
        arena.write(offset, data)
        placed = Placed(DTYPE_NAMES[one.dtype], tuple(one.shape), tuple(one.stride()), offset, len(data))
        arguments.append({"tensor": placed.to_json(), "home": f"{home}.{number}"})
        offset = aligned(offset + len(data))
    return {"arguments": arguments}, offset
