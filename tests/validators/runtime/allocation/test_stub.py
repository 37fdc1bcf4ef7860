"""The worker's side: passes calls on, moves contents of real blocks, and says of errors what they were."""

import json
import mmap
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kb.validators.runtime import wire
from kb.validators.runtime.allocation import stub
from kb.validators.runtime.allocation.stores import UNIT

STRATEGY = """
import torch

LAWS = ("nested",)


class DeviceAllocator:
    def __init__(self, device, limit_bytes, alignment):
        self.device, self.limit, self.held = device, limit_bytes, 0

    def alloc(self, size, stream):
        if self.held + size > self.limit:
            raise MemoryError("full")
        self.held += size
        return torch.zeros(size, dtype=torch.uint8, device=self.device)

    def free(self, block, stream):
        self.held -= block.numel()

    def reserved_bytes(self):
        return self.held


class Allocator:
    def __init__(self, capacity_bytes, alignment):
        self.top = 0

    def alloc(self, size, stream):
        self.top += 256
        return {1: "text", 2: 2.5, 3: True, 4: None}.get(size, self.top - 256)

    def free(self, offset, stream):
        raise KeyError(offset)
"""


@pytest.fixture
def session(tmp_path: Path) -> stub.Session:
    file = tmp_path / "candidate.py"
    file.write_text(STRATEGY, encoding="utf-8")
    made = stub.Session(mmap.mmap(-1, 1 << 20), file, "cpu")
    made.answer({"op": "load"})
    return made


def own(session: stub.Session, *, limit: int = 1 << 20) -> None:
    arguments = {"device": "cpu", "limit_bytes": limit, "alignment": 64}
    session.answer({"op": "open", "form": "DeviceAllocator", "arguments": arguments})


def addressed(session: stub.Session, index: int | None, numbers: list[int], data: bytes) -> dict[str, Any]:
    session.memory[: 8 * len(numbers)] = np.array(numbers, np.int64).tobytes()
    session.memory[8 * len(numbers) : 8 * len(numbers) + len(data)] = data
    return {"index": index, "count": len(numbers), "numbers": 0, "data": 8 * len(numbers)}


def test_loading_tells_forms_and_laws(session: stub.Session) -> None:
    found = session.answer({"op": "load"})
    assert {"Allocator", "DeviceAllocator"} <= set(found["forms"])
    assert found["laws"] == ["nested"]


def test_contents_of_own_blocks_and_of_the_buffer_go_in_and_out(session: stub.Session) -> None:
    own(session)
    session.answer({"op": "alloc", "index": 7, "size": 100, "stream": 0})
    session.buffer = torch.zeros(1000, dtype=torch.uint8)
    for index, last in ((7, 5), (None, 61)):
        data = bytes(range(2 * UNIT))
        session.answer({"op": "fill", **addressed(session, index, [0, last], data)})
        session.answer({"op": "fetch", **addressed(session, index, [last, 0], bytes(2 * UNIT))})
        assert session.memory[16 : 16 + 2 * UNIT] == data[UNIT:] + data[:UNIT]
    session.answer({"op": "move", "source": [61 * UNIT], "target": [8], "size": [UNIT]})
    assert bytes(session.buffer[8 : 8 + UNIT].numpy()) == bytes(range(UNIT, 2 * UNIT))
    session.answer({"op": "touch", "index": 7, "byte": 9})
    assert set(session.held[7].tolist()) == {9}


def test_a_block_is_described_as_it_is(session: stub.Session) -> None:
    own(session)
    reply = session.answer({"op": "alloc", "index": 0, "size": 33, "stream": 0})
    assert reply["reserved"] == 33
    told = reply["tensor"]
    assert (told["plain"], told["dtype"], told["device"], told["size"]) == (True, "torch.uint8", "cpu", 33)
    assert told["address"] == session.held[0].data_ptr()


def test_a_batch_keeps_no_tensor_alive_and_hands_offsets_over(session: stub.Session) -> None:
    own(session, limit=100)
    calls = {"codes": [0, 1] * 5, "first": [60, 0, 60, 1, 60, 2, 60, 3, 60, 4], "second": [0] * 10}
    assert session.answer({"op": "batch", **calls}) == {"offsets": [0] * 5}


@pytest.mark.parametrize("size", [1, 2, 4])
def test_an_answer_that_is_no_whole_number_is_a_type_error(session: stub.Session, size: int) -> None:
    session.answer({"op": "open", "form": "Allocator", "arguments": {"capacity_bytes": 1, "alignment": 1}})
    with pytest.raises(TypeError):
        session.answer({"op": "alloc", "index": 0, "size": size, "stream": 0})


def test_errors_come_back_as_what_they_were(session: stub.Session) -> None:
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=stub.serve, args=(theirs, session))
    thread.start()
    own(session, limit=10)
    asked: tuple[dict[str, Any], ...] = (
        {"op": "alloc", "index": 0, "size": 99, "stream": 0},
        {"op": "open", "form": "Allocator", "arguments": {"capacity_bytes": 1, "alignment": 1}},
        {"op": "alloc", "index": 0, "size": 9, "stream": 0},
        {"op": "free", "index": 0, "stream": 0},
        {"op": "no such thing"},
    )
    replies = []
    for number, message in enumerate(asked):
        wire.send(ours, message | {"ticket": str(number)})
        replies.append(wire.receive(ours, limit_s=10))
    wire.send(ours, {"op": "bye"})
    thread.join(timeout=10)
    ours.close()
    theirs.close()
    assert replies[0]["out_of_memory"] == "full"
    assert replies[2]["offset"] == 0
    assert [one["error"]["type"] for one in replies[3:]] == ["KeyError", "KeyError"]
    assert json.dumps(replies)
