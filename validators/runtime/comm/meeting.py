"""How the ranks of one job find each other: over the judge's switch, or over gloo or NCCL in a network of their own."""

import ctypes
import os
import re
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from kb.validators.runtime import seccomp
from kb.validators.runtime.comm import group
from kb.validators.runtime.comm.link import Link

SWITCH, GLOO, NCCL = "switch", "gloo", "nccl"

TRANSPORTS = (SWITCH, GLOO, NCCL)
"""What ranks can be joined by. Over ``gloo`` and ``nccl`` there are no windows, so no ``link`` for a candidate."""

PORT = 29_400
"""Where rank 0 keeps the store in which the ranks find each other, in a network that is theirs alone."""

READ = [Path("/sys/bus/pci"), Path("/sys/devices"), Path("/sys/class/net")]
"""What gloo and NCCL look at when they choose an interface."""

_NEWNET = 0x40000000

Members = tuple[int, ...]


def subsets(world_size: int) -> list[Members]:
    """Return all groups of at least two ranks, small ones first: groups that calls may be made with."""
    found = [tuple(rank for rank in range(world_size) if mask >> rank & 1) for mask in range(1 << world_size)]
    return sorted((one for one in found if len(one) > 1), key=lambda one: (len(one), one))


def meet(order: dict[str, Any], link: Link) -> dict[Members, Any]:
    """Make this process a rank of ``torch.distributed``.

    Args:
        order: ``rank``, ``world_size`` and ``transport``.
        link: This rank's link to the switch; unused over other transports.

    Returns:
        Members of a group to the group, for those that this rank is in.
    """
    rank, world = order["rank"], order["world_size"]
    if order["transport"] == SWITCH:
        return group.connect(link, world, subsets(world))
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    store = TCPStore("127.0.0.1", PORT, world, rank == 0, use_libuv=False)
    # NCCL would connect when it is first used, which is after the seal.
    os.environ["NCCL_RUNTIME_CONNECT"] = "0"
    device = torch.device("cuda", 0) if order["transport"] == NCCL else None
    dist.init_process_group(order["transport"], store=store, rank=rank, world_size=world, device_id=device)
    made = {one: dist.new_group(list(one)) for one in subsets(world)}  # every rank makes every group, in one order
    return {one: value for one, value in made.items() if rank in one}


def enter_network(descriptor: int) -> None:
    """Go over into the network namespace of the job.

    Raises:
        OSError: This process may not.
    """
    if seccomp.libc().setns(descriptor, _NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    os.close(descriptor)


def own_sockets() -> list[int]:
    """Return the inode numbers of this process's sockets: what it sends can be told by them from outside."""
    found = []
    for one in Path("/proc/self/fd").iterdir():
        try:
            inode = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(one))  # noqa: PTH115 - no path
        except OSError:
            continue
        if inode is not None:
            found.append(int(inode.group(1)))
    return found
