"""The worker of an allocation strategy: passes calls on, and moves bytes where a device or a tensor holds them.

A strategy over the judge's own memory answers with offsets, and the judge writes and reads that memory itself; only
where blocks are real memory of this process, or lie on a GPU, do contents travel through here. What this process says
of them is compared with what the judge wrote, and with the memory that is seen from outside.
"""

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import mmap
import operator
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from kb.validators.runtime import entrance, environment, wire

UNIT = 16
"""Bytes of the smallest piece of a block that is written and read."""

Message = dict[str, Any]


def main() -> None:
    """Enter the sandbox, prove it, then serve the judge until it hangs up."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    memory = mmap.mmap(int(sys.argv[2]), 0)
    order = entrance.hear(channel)
    file = Path(order["folder"]) / order["file"]
    device = order.get("device", "cpu")
    if device != "cpu" or b"torch" in file.read_bytes():
        # Its own probing is not the candidate's; a strategy that is plain Python starts without it.
        importlib.import_module("torch")
    layers = entrance.enter(channel, order)
    if device == "cpu":
        session = Session(memory, file, device)
        entrance.ready(channel, layers)
    else:
        # The judge says when: while the device is opened, its driver may look for a daemon, and at no other time.
        entrance.ready(channel, layers)
        message = wire.receive(channel, limit_s=120)
        session = Session(memory, file, device)
        wire.send(channel, {"opened": True, "ticket": message["ticket"]})
    gc.freeze()  # collecting after a trace then looks at what the trace left, not at the toolchain
    serve(channel, session)


def serve(channel: socket.socket, session: "Session") -> None:
    """Answer one message after another; whatever a candidate raises becomes part of an answer."""
    while True:
        message = wire.receive(channel, limit_s=None)
        if message["op"] == "bye":
            return
        try:
            reply = session.answer(message)
        except BaseException as error:  # noqa: BLE001 - whatever a candidate raises becomes a verdict of the judge
            reply = {"error": {"type": type(error).__name__[:80], "message": str(error)[:2000]}}
            if _is_out_of_memory(error):
                reply = {"out_of_memory": str(error)[:300]}
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        wire.send(channel, reply | {"ticket": message["ticket"]})


def _is_out_of_memory(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    return isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError))


class Session:
    """What lives between two messages."""

    def __init__(self, memory: mmap.mmap, file: Path, device: str) -> None:
        self.memory, self.file, self.device = memory, file, device
        self.module: ModuleType | None = None
        self.strategy: Any = None
        self.held: dict[int, Any] = {}
        """Index of a block to what the strategy gave for it: an offset or a tensor."""
        self.buffer: Any = None
        """On a GPU: the memory whose offsets are handed out."""
        self.graphs: list[Any] = []
        self.before: dict[str, str] = {}
        self._operations: dict[str, Callable[[Message], Message]] = {
            "load": self._load, "plan": self._plan, "graphs": self._graphs, "open": self._open, "close": self._close,
            "alloc": self._alloc, "free": self._free, "wait": self._wait, "batch": self._batch,
            "admit": self._admit, "append": self._append, "fork": self._fork, "release": self._release,
            "table": self._table, "fill": self._fill, "fetch": self._fetch, "touch": self._touch, "move": self._move,
            "capture": self._capture, "state": self._state,
        }  # fmt: skip
        self._synchronize: Callable[[], object] = int
        if device != "cpu":
            torch = importlib.import_module("torch")
            self._synchronize = torch.cuda.synchronize
            self._warm_up()
        else:
            _give_back_at_once()

    def _warm_up(self) -> None:
        """Have the driver load the kernels that move contents now, so that they do not count as a strategy's memory."""
        torch = importlib.import_module("torch")
        self.buffer = torch.empty(1 << 21, dtype=torch.uint8, device="cuda")
        self.held[0] = torch.empty(4 * UNIT, dtype=torch.uint8, device="cuda")
        self.memory[: 8 + UNIT] = bytes(8 + UNIT)
        where = {"count": 1, "numbers": 0, "data": 8}
        for index in (None, 0):
            self._fill({**where, "index": index})
            self._fetch({**where, "index": index})
        self._touch({"index": 0, "byte": 1})
        self._move({"source": [0], "target": [64], "size": [64]})
        self._capture({"offsets": [0], "sizes": [64]})
        self._close({})

    def answer(self, message: Message) -> Message:
        """Do what a message asks for."""
        return self._operations[message["op"]](message)

    def _load(self, _: Message) -> Message:
        if "torch" in sys.modules:
            self.before = environment.snapshot()
        spec = importlib.util.spec_from_file_location("candidate", self.file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{self.file.name} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules["candidate"] = module
        spec.loader.exec_module(module)
        self.module = module
        laws = getattr(module, "LAWS", None)
        return {
            "forms": [name for name, value in vars(module).items() if callable(value)][:1000],
            "laws": None if laws is None else [str(one) for one in laws][:100],
        }

    def _state(self, _: Message) -> Message:
        if not self.before:
            return {"changed": []}
        return {"changed": environment.changes(self.before, environment.snapshot())}

    def _open(self, message: Message) -> Message:
        self._close(message)
        if message.get("buffer_bytes") and self.device != "cpu":
            torch = importlib.import_module("torch")
            self.buffer = torch.empty(message["buffer_bytes"], dtype=torch.uint8, device="cuda")
        if message.get("form"):
            self.strategy = getattr(self.module, message["form"])(**message["arguments"])
        return {"page_tokens": _whole(getattr(self.strategy, "page_tokens", 0))}

    def _close(self, _: Message) -> Message:
        self.strategy, self.buffer = None, None
        self.held.clear()
        self.graphs.clear()
        gc.collect()
        if self.device != "cpu":
            importlib.import_module("torch").cuda.empty_cache()
        return {}

    # workspace_plan

    def _plan(self, message: Message) -> Message:
        run = vars(self.module)["run"]
        offsets, total = run(message["sizes"], message["first_use"], message["last_use"], message["alignment"])
        return {"offsets": [_whole(one) for one in offsets], "total": _whole(total)}

    def _alloc(self, message: Message) -> Message:
        given = self.strategy.alloc(message["size"], message["stream"])
        self.held[message["index"]] = given
        reply = self._described(given)
        if hasattr(self.strategy, "reserved_bytes"):
            reply["reserved"] = _whole(self.strategy.reserved_bytes())
        return reply

    def _described(self, given: object) -> Message:
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(given, torch.Tensor):
            return {"offset": _whole(given)}
        return {
            "tensor": {
                "plain": type(given) is torch.Tensor and not vars(given), "dtype": str(given.dtype),
                "device": given.device.type, "axes": given.dim(), "contiguous": given.is_contiguous(),
                "size": given.numel(), "address": given.data_ptr(),
            }
        }  # fmt: skip

    def _free(self, message: Message) -> Message:
        self.strategy.free(self.held.pop(message["index"]), message["stream"])
        return {}

    def _wait(self, message: Message) -> Message:
        if hasattr(self.strategy, "wait"):
            self.strategy.wait(message["stream"], message["on"])
        return {}

    def _batch(self, message: Message) -> Message:
        """Run many calls without saying what came of each; offsets are handed over at the end."""
        strategy = self.strategy
        held: dict[int, Any] = {}
        given: list[int] = []
        for code, first, second in zip(message["codes"], message["first"], message["second"], strict=True):
            if code == 0:
                held[len(given)] = block = strategy.alloc(first, second)
                given.append(block if type(block) is int else 0)
                del block  # a tensor that is still referred to here would never be freed
            elif code == 1:
                strategy.free(held.pop(first), second)
            elif code == 2:
                strategy.wait(first, second)
            elif code == 3:
                strategy.admit(first, second, tuple(message["keys"].get(str(first), ())))
            elif code == 4:
                strategy.append(first, second)
            elif code == 5:
                strategy.fork(first, second)
            else:
                strategy.free(first)
        return {"offsets": given}

    # kv_block_pool

    def _admit(self, message: Message) -> Message:
        found = self.strategy.admit(message["request"], message["tokens"], tuple(message["keys"]))
        return self._table(message) | {"found": _whole(found), "copies": []}

    def _append(self, message: Message) -> Message:
        copies = self.strategy.append(message["request"], message["tokens"])
        return self._table(message) | {"copies": _flat(copies)}

    def _fork(self, message: Message) -> Message:
        copies = self.strategy.fork(message["parent"], message["request"])
        return self._table(message) | {"copies": _flat(copies)}

    def _release(self, message: Message) -> Message:
        self.strategy.free(message["request"])
        return {}

    def _table(self, message: Message) -> Message:
        slot = self.strategy.slot(message["request"])
        return {
            "table": [_whole(one) for one in self.strategy.table(message["request"])],
            "slot": None if slot is None else _whole(slot),
        }

    # graph_pool

    def _graphs(self, message: Message) -> Message:
        histograms = [dict(zip(one["batch"], one["steps"], strict=True)) for one in message["histograms"]]
        run = vars(self.module)["run"]
        planned = run(histograms, *(message[name] for name in _GRAPH_ARGUMENTS))
        return {"streams": [_flat(stream) for stream in planned]}

    def _capture(self, message: Message) -> Message:
        """Capture one graph a region of the buffer, in the order given; each writes its own region and nothing else."""
        torch = importlib.import_module("torch")
        for offset, size in zip(message["offsets"], message["sizes"], strict=True):
            region = self.buffer[offset : offset + size]
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(_NODES):
                    region.add_(1)
            self.graphs.append(graph)
        self._synchronize()
        return {}

    # contents

    def _units(self, index: int | None) -> Any:  # noqa: ANN401 - a tensor, where torch is there
        given = self.buffer if index is None else self.held[index]
        whole = given.numel() // UNIT * UNIT
        return given[:whole].view(-1, UNIT)

    def _in_memory(self, place: int, size: int) -> Any:  # noqa: ANN401 - a tensor
        torch = importlib.import_module("torch")
        return torch.frombuffer(memoryview(self.memory)[place : place + size], dtype=torch.uint8)

    def _fill(self, message: Message) -> Message:
        """Write units of a block, or of the buffer: their numbers and contents lie in the shared memory."""
        units, which, data = self._addressed(message)
        units[which] = data.to(units.device)
        self._synchronize()
        return {}

    def _fetch(self, message: Message) -> Message:
        """Read units of a block, or of the buffer, into the shared memory."""
        units, which, data = self._addressed(message)
        data.copy_(units[which])
        return {}

    def _addressed(self, message: Message) -> tuple[Any, Any, Any]:
        torch = importlib.import_module("torch")
        count = message["count"]
        numbers = self._in_memory(message["numbers"], 8 * count).view(torch.int64)
        data = self._in_memory(message["data"], UNIT * count).view(-1, UNIT)
        units = self._units(message["index"])
        return units, numbers.to(units.device), data

    def _touch(self, message: Message) -> Message:
        """Write to every byte of a block, so that it has to be there."""
        self.held[message["index"]].fill_(message["byte"])
        self._synchronize()
        return {}

    def _move(self, message: Message) -> Message:
        """Copy bytes within the buffer."""
        for source, target, size in zip(message["source"], message["target"], message["size"], strict=True):
            self.buffer[target : target + size] = self.buffer[source : source + size].clone()
        self._synchronize()
        return {}


_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
"""Options of ``mallopt``."""

_NODES = 400
"""Kernels of a captured graph: ten a layer of forty."""

_GRAPH_ARGUMENTS = ("max_batch", "row_bytes", "graph_bytes", "budget_bytes", "alignment")


def _give_back_at_once() -> None:
    """Have the C library return large blocks when they are freed.

    Memory seen from outside is then what is held, not what was held once.
    """
    library = ctypes.CDLL(None)
    for option in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
        library.mallopt(option, 1 << 17)


def _whole(value: object) -> int:
    """Return a whole number, or raise TypeError."""
    return int(operator.index(value))  # type: ignore[arg-type]


def _flat(rows: Any) -> list[int]:  # noqa: ANN401 - whatever a candidate returns
    """Return triples of whole numbers as one list."""
    flat: list[int] = []
    for row in rows:
        first, second, third = row
        flat += [_whole(first), _whole(second), _whole(third)]
    return flat
