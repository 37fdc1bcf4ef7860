"""One rank: a sandboxed process that is joined to the others, loads the candidate, and calls it when the judge says so.

As the stub of a single worker, it is a byte pump that holds no seed, no expectation, no tolerance, no clock and no
verdict. All connections are made before the seal; afterwards no socket can be made any more.
"""

import inspect
import mmap
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kb.validators.runtime import devices, entrance, stub
from kb.validators.runtime.comm import meeting
from kb.validators.runtime.comm.link import Link, OneSided
from kb.validators.runtime.stub import Session

Members = tuple[int, ...]


def main() -> None:
    """Enter the sandbox, meet the other ranks, then serve the judge until it hangs up."""
    channel, link = (socket.socket(fileno=int(sys.argv[place])) for place in (1, 4))
    memory, window = (mmap.mmap(int(sys.argv[place]), 0) for place in (2, 3))
    network = int(sys.argv[5]) if len(sys.argv) > 5 else None
    kept = {link.fileno(), *([] if network is None else [network])}
    order = entrance.hear(channel, kept=kept)
    torch.set_num_threads(1)
    torch.zeros(1, dtype=torch.bfloat16).to(torch.float8_e4m3fn)
    end = Link(link, window, order["rank"])
    joined: dict[Members, Any] = {}

    def meet() -> None:
        joined.update(meeting.meet(order, end))

    if network is not None:
        meeting.enter_network(network)
    layers = entrance.enter(
        channel, order, read=[] if network is None else meeting.READ, meet=None if network is None else meet
    )
    if network is None:
        meet()
    # Once more after the last fork: two threads of a candidate that first need torch's pool at once would break it.
    torch.set_num_threads(1)
    device = devices.open_device(order["device"], memory)
    sockets = meeting.own_sockets()
    entrance.ready(channel, layers, sockets=sockets)
    _serve(channel, Session(memory, device), order, joined, end)


def _serve(
    channel: socket.socket, session: Session, order: dict[str, Any], joined: dict[Members, Any], link: Link
) -> None:
    file, function = Path(order["folder"]) / order["file"], order["function"]
    loaded: list[Callable[..., object]] = []

    def load(session: Session, _: dict[str, Any]) -> dict[str, Any]:
        reply = stub.load(session, file, function)
        if session.run is not None:
            loaded.append(session.run)
        return reply

    def call(session: Session, message: dict[str, Any]) -> dict[str, Any]:
        members = tuple(message["members"])
        run, more = loaded[0], {}
        if "link" in inspect.signature(run).parameters:
            if order["transport"] != meeting.SWITCH:
                raise RuntimeError(f"{order['transport']} gives no one-sided access to windows")
            more["link"] = OneSided(link, members)
        session.run = lambda *arguments: run(*arguments, joined[members], **more)
        return stub.call(session, message)

    handlers = stub.handlers_of(file, function, channel) | {"load": load, "call": call}
    stub.serve(channel, session, handlers)
