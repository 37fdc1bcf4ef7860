"""The candidate worker: a byte pump. It loads the candidate, hands it tensors, and sends back bytes.

It holds no seed, no expectation, no tolerance, no clock and no verdict. Whatever a candidate does to this process, it
can only change the bytes that it hands over, and those are compared elsewhere.
"""

import contextlib
import importlib
import importlib.util
import mmap
import os
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from kb.validators.runtime import (
    breakout,
    clocks,
    commitment,
    devices,
    entrance,
    environment,
    ghosts,
    interpreting,
    kernels,
    wire,
)


def main() -> None:
    """Enter the sandbox, prove it, then serve the judge until it hangs up."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    memory = mmap.mmap(int(sys.argv[2]), 0)
    alone = len(sys.argv) < 4
    order = entrance.hear(channel, close=alone)
    _preload(triton=order["triton"])
    # A tool that watches this process has to be reached when the device is opened, which is therefore done before.
    early = None if alone else devices.open_device(order["device"], memory)
    layers = entrance.enter(channel, order, alone=alone)
    start_threads()
    entrance.ready(channel, layers)
    file, function = Path(order["folder"]) / order["file"], order["function"]
    device = _open_device(channel, order["device"], memory, early)
    serve(channel, Session(memory, device), handlers_of(file, function, channel))


def _open_device(channel: socket.socket, kind: str, memory: mmap.mmap, early: devices.Device | None) -> devices.Device:
    """Open the device; a GPU only when the judge says so, because its driver does what is refused later.

    No context outlives a fork, so this is done in here. The judge names the moment by a message of its own.
    """
    if kind == "cpu":
        return devices.open_device(kind, memory)
    message = wire.receive(channel, limit_s=120)
    device = early or devices.open_device(kind, memory)
    wire.send(channel, {"opened": True, "ticket": message["ticket"]})
    return device


def _preload(*, triton: bool) -> None:
    """Import the toolchain before the sandbox counts attempts; its own probing is not the candidate's."""
    importlib.import_module("torch")
    if triton:
        with contextlib.suppress(ImportError):
            importlib.import_module("triton.language")
        interpreting.round_as_a_gpu_does()


def start_threads() -> None:
    """Let torch make its pools of threads, in the process that stays and before anybody else has threads.

    A pool that was made before a fork is made anew by the next thread that needs one, and if two threads do at the
    same time, one of them fails. A process with threads cannot enter a user namespace either.
    """
    import torch

    torch.set_num_threads(max(1, min(2, os.cpu_count() or 1)))
    torch.zeros(2, 2) @ torch.zeros(2, 2)
    torch.zeros(1, dtype=torch.bfloat16).to(torch.float8_e4m3fn)


class Session:
    """What lives between two messages."""

    def __init__(self, memory: mmap.mmap, device: devices.Device) -> None:
        self.memory = memory
        self.device = device
        self.batches = clocks.Batches(memory, device)
        self.module: ModuleType | None = None
        self.run: Callable[..., object] | None = None
        self.last: list[Any] = []
        self.held: deque[list[Any]] = deque()
        """What earlier calls returned, the latest last; as many of them as the judge wants to look at again."""
        self.offset = 0
        self.before: dict[str, str] = {}


Handler = Callable[[Session, dict[str, Any]], dict[str, Any]]
"""Answers one message of the judge."""


def handlers_of(file: Path, function: str, channel: socket.socket) -> dict[str, Handler]:
    """Return what answers each operation.

    Args:
        file: The candidate's file.
        function: Name of its function.
        channel: Socket to the judge.
    """
    return {
        "load": lambda s, _: load(s, file, function),
        "call": call,
        "again": again,
        "before": lambda s, m: {"outputs": hand_over(s, s.held[-m["back"]])},
        "ordered": lambda s, _: {"outputs": hand_over(s, s.device.ordered())},
        "inputs": lambda s, m: _with_tensors(s.device.surrender, m),
        "reload": lambda s, m: _with_tensors(s.device.overwrite, m),
        "exec": lambda *_: {"refused": breakout.exec_refused()},
        "profile": _profile,
        "state": lambda s, _: {"changed": environment.changes(s.before, environment.snapshot()) + s.device.noticed()},
        "ghosts": lambda s, _: {"names": ghosts.candidates(s.module)},
        "trace": lambda s, _: ghosts.trace(s.module),
        "reached": lambda s, _: ghosts.reached(s.module),
        "haunt": lambda s, m: _haunt(s, m, function),
        "lay": lambda s, m: s.batches.lay(m),
        "derive": lambda s, m: s.batches.derive(m),
        "edit": lambda s, m: s.batches.edit(m),
        "capture": lambda s, m: s.batches.capture(_loaded(s), m),
        "batch": lambda s, m: s.batches.batch(_loaded(s), m, partial(_armed, channel, m["ticket"])),
        "commit": _commit,
        "outputs_of": _outputs_of,
    }


def serve(channel: socket.socket, session: Session, handlers: dict[str, Handler]) -> None:
    """Answer the judge's messages until it says goodbye.

    Args:
        channel: Socket to the judge.
        session: What lives between two messages.
        handlers: Operation to what answers it; whatever one raises is sent as an error.
    """
    while True:
        message = wire.receive(channel, limit_s=None)
        if message["op"] == "bye":
            return
        try:
            reply = handlers[message["op"]](session, message)
        except BaseException as error:  # noqa: BLE001 - whatever a candidate raises becomes a verdict of the judge
            reply = {"error": {"type": type(error).__name__[:80], "message": str(error)[:2000]}}
            with contextlib.suppress(BaseException):
                traceback.print_exc(limit=-8)
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        wire.send(channel, reply | {"ticket": message["ticket"]})


def load(session: Session, file: Path, function: str) -> dict[str, Any]:
    """Import a candidate's file and find its function."""
    if session.device.kind != "cpu":
        # Compilers patch parts of torch and extend the path when they are imported: not the candidate's doing.
        compiler = ("torch._dynamo", "torch._inductor.compile_fx") if b"torch.compile" in file.read_bytes() else ()
        for name in ("setuptools", *compiler):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    session.before = environment.snapshot()
    spec = importlib.util.spec_from_file_location("candidate", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file.name} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    session.module = module
    session.run = getattr(module, function)
    if not callable(session.run):
        raise TypeError(f"{function} is not callable")
    return {"loaded": True}


def _haunt(session: Session, message: dict[str, Any], function: str) -> dict[str, Any]:
    ghosts.haunt(session.module, message["name"])
    session.run = getattr(session.module, function)
    return {}


def call(session: Session, message: dict[str, Any]) -> dict[str, Any]:
    """Call the candidate once, keep its results, and hand them over."""
    run = _prepare(session, message)
    session.held.append(session.last)
    while len(session.held) > message.get("keep", 1):
        session.held.popleft()
    session.last = []
    result = run()
    session.last = list(result) if isinstance(result, (tuple, list)) else [result]
    session.device.left(session.last[:16])
    session.device.synchronize()
    return {"outputs": hand_over(session, session.last)}


def _prepare(session: Session, message: dict[str, Any]) -> Callable[[], object]:
    """Bring the arguments to where they belong; returns the call that is left to make."""
    function = _loaded(session)
    arguments = [one["value"] if "value" in one else session.device.argument(one) for one in message["arguments"]]
    session.offset = message["offset"]
    session.device.arrive(_tensors(message), room=message.get("room", 0))
    return partial(function, *arguments)


def _loaded(session: Session) -> Callable[..., object]:
    if session.run is None:
        raise RuntimeError("no candidate is loaded")
    return session.run


def _armed(channel: socket.socket, ticket: str) -> None:
    wire.send(channel, {"armed": True, "ticket": ticket})


def _outputs_of(session: Session, message: dict[str, Any]) -> dict[str, Any]:
    """Hand over what chosen calls of the last batch returned, one after the other."""
    session.offset = message["offset"]
    calls = []
    for index in message["calls"]:
        calls.append(hand_over(session, _results_of(session, index)))
        ends = [one["offset"] + one["size_bytes"] for one in calls[-1] if "offset" in one]
        session.offset = (max(ends, default=session.offset) + 255) // 256 * 256
    return {"calls": calls}


def _results_of(session: Session, index: int) -> list[Any]:
    result = session.batches.kept[index]
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _commit(session: Session, message: dict[str, Any]) -> dict[str, Any]:
    """Answer for what chosen calls of the last batch returned, with factors that lie in the arena."""
    kind, at = session.device.kind, message["offset"]
    key = commitment.factors(session.memory[at : at + commitment.KEY_BYTES], kind)
    return {"calls": [commitment.answer(_results_of(session, index), key, kind) for index in message["calls"]]}


def _tensors(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in message["arguments"] if "tensor" in one]


def _with_tensors(act: Callable[[list[dict[str, Any]]], None], message: dict[str, Any]) -> dict[str, Any]:
    act(_tensors(message))
    return {}


def again(session: Session, message: dict[str, Any]) -> dict[str, Any]:
    """Hand the last results over once more, as they are now."""
    if message.get("synchronize"):
        session.device.synchronize()
    return {"outputs": hand_over(session, session.last)}


def _profile(session: Session, message: dict[str, Any]) -> dict[str, Any]:
    """Call once more and say which kernels ran on the device; in a worker of its own, never in one that is judged."""
    run = _prepare(session, message)
    session.device.synchronize()
    return {"kernels": kernels.recorded(run, session.device.synchronize)}


def hand_over(session: Session, results: list[Any]) -> list[dict[str, Any]]:
    """Copy every result's bytes into the arena and say what they claim to be."""
    import torch

    described: list[dict[str, Any]] = []
    offset = session.offset
    for one in results[:16]:
        claims: dict[str, Any] = {"plain": type(one) is torch.Tensor, "type": type(one).__name__[:80]}
        described.append(claims)
        if not isinstance(one, torch.Tensor):
            continue
        # Through the class: what an instance has in place of a method would run on other terms than the result's own.
        claims["plain"] = claims["plain"] and not any(hasattr(torch.Tensor, name) for name in vars(one))
        flat = torch.Tensor.detach(one).contiguous().reshape(-1)
        size = flat.numel() * flat.itemsize
        claims.update(dtype=str(flat.dtype).removeprefix("torch."), shape=list(one.shape), device=one.device.type)
        claims.update(offset=offset, size_bytes=size)
        if one.device.type == session.device.kind and size and offset + size <= len(session.memory):
            session.device.write_out(flat, offset)
        offset += (size + 255) // 256 * 256
    return described
