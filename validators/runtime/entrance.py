"""How every worker begins: hear the order, enter the sandbox, try to break it, forget the judge, report as ready."""

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from kb.validators.runtime import breakout, sandbox, wire


def hear(channel: socket.socket, *, kept: Collection[int] = (), close: bool = True) -> dict[str, Any]:
    """Let go of what this process inherited, hear what it is to do, and go to the candidate's folder.

    Args:
        channel: Socket to the judge.
        kept: Further descriptors that stay open.
        close: False for a worker that a tool watches, whose descriptors are the tool's too.

    Returns:
        The order.

    Raises:
        WireError: The judge is gone, or sent none within a minute.
    """
    for descriptor in range(3, 256) if close else ():
        if descriptor != channel.fileno() and descriptor not in kept:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    order = wire.receive(channel, limit_s=60)
    os.chdir(order["folder"])
    return order


def enter(
    channel: socket.socket,
    order: dict[str, Any],
    *,
    read: Collection[Path] = (),
    meet: Callable[[], None] | None = None,
    alone: bool = True,
) -> sandbox.Layers:
    """Enter the sandbox that an order asks for, and try to break every layer of it.

    Args:
        channel: Socket to the judge.
        order: ``folder``, ``cache``, ``canary``, ``judge_pid``, ``limits``, and ``device`` if it is not the CPU.
        read: What may be read besides the candidate's folder.
        meet: See ``sandbox.enter``.
        alone: See ``sandbox.enter``.

    Returns:
        The layers, and which of them held.

    Raises:
        OSError: Landlock or seccomp, the base, cannot be had.
    """
    limits = sandbox.Limits(**order["limits"])
    layers = sandbox.enter(
        write=[Path(order["cache"])],
        read=[Path(order["folder"]), *read],
        limits=limits,
        channel=channel,
        device=order.get("device", "cpu"),
        meet=meet,
        alone=alone,
    )
    breakout.verify(layers, canary=Path(order["canary"]), judge_pid=order["judge_pid"], limits=limits)
    return layers


def ready(channel: socket.socket, layers: sandbox.Layers, **more: object) -> None:
    """Take the judge's own modules off the table, so that a candidate does not meet them by accident, and say so.

    Args:
        channel: Socket to the judge.
        layers: What ``enter`` returned.
        more: What the judge is told besides.

    Raises:
        WireError: The judge is gone.
    """
    for name in [one for one in sys.modules if one == "kb" or one.startswith("kb.")]:
        del sys.modules[name]
    wire.send(channel, {"ready": True, "active": layers.active, "verified": layers.verified, **more})
