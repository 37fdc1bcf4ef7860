"""The worker of a model: loads the candidate inside the sandbox, and hands over logits and tokens.

It knows neither the original's answers nor any threshold; it is told tokens, and its answers are compared elsewhere.
"""

import contextlib
import importlib
import importlib.util
import mmap
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kb.validators.runtime import entrance, wire


def main() -> None:
    """Enter the sandbox, prove it, then serve the judge until it hangs up."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    memory = mmap.mmap(int(sys.argv[2]), 0)
    order = entrance.hear(channel)
    _preload()
    layers = entrance.enter(channel, order, read=[*map(Path, order["read"])])
    _start_threads()
    entrance.ready(channel, layers)
    _serve(channel, memory, Path(order["folder"]) / order["file"])


def _preload() -> None:
    """Import what every model needs before attempts are counted; its own probing is not the candidate's."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    for name in ("transformers.modeling_utils", "transformers.models.auto.modeling_auto"):
        importlib.import_module(name)


def _start_threads() -> None:
    """Let torch make its threads; they would not survive the fork that entering the sandbox takes."""
    import torch

    torch.set_num_threads(max(1, min(2, os.cpu_count() or 1)))
    torch.zeros(2, 2) @ torch.zeros(2, 2)


def _serve(channel: socket.socket, memory: mmap.mmap, file: Path) -> None:
    session = _Session(memory, file)
    handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "load": session.load,
        "logits": session.logits,
        "generate": session.generate,
    }
    while True:
        message = wire.receive(channel, limit_s=None)
        if message["op"] == "bye":
            return
        try:
            reply = handlers[message["op"]](message)
        except BaseException as error:  # noqa: BLE001 - whatever a candidate raises becomes a verdict of the judge
            reply = {"error": {"type": type(error).__name__[:80], "message": str(error)[:2000]}}
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        wire.send(channel, reply | {"ticket": message["ticket"]})


class _Session:
    """What lives between two messages."""

    def __init__(self, memory: mmap.mmap, file: Path) -> None:
        self.memory, self.file = memory, file
        self.model: Any = None

    def load(self, message: dict[str, Any]) -> dict[str, Any]:
        spec = importlib.util.spec_from_file_location("candidate", self.file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{self.file.name} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules["candidate"] = module
        spec.loader.exec_module(module)
        self.model = module.load(message["weights"])
        return {"loaded": True}

    def logits(self, message: dict[str, Any]) -> dict[str, Any]:
        import torch

        made = self.model.logits(torch.tensor(message["tokens"], dtype=torch.int64))
        flat = torch.Tensor.detach(made).to("cpu", torch.float32).contiguous()
        data = bytes(flat.reshape(-1).view(torch.uint8).numpy())
        if len(data) <= len(self.memory):
            self.memory[: len(data)] = data
        return {"shape": list(flat.shape), "size_bytes": len(data)}

    def generate(self, message: dict[str, Any]) -> dict[str, Any]:
        import torch

        uniforms = torch.tensor(message["uniforms"], dtype=torch.float64)
        made = self.model.generate(torch.tensor(message["tokens"], dtype=torch.int64), uniforms)
        return {"tokens": [int(one) for one in made]}
