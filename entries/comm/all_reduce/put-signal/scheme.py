"""One-shot all-reduce by one-sided writes: put into every peer's window, signal, wait for theirs, add up.

Protocol of ``all_reduce`` with one-sided access: ``run(tensor, group=None, *, link)``. ``link`` stands for symmetric
memory: windows of all ranks, ``put`` without order, ``signal`` that releases what was put there before.
"""

from typing import Protocol

import torch
import torch.distributed as dist

READY, FREE = 0, 1
"""Slots: data lie in the window; the window may be written to again."""


class Link(Protocol):
    """What is needed of symmetric memory."""

    rank: int
    world_size: int
    window_bytes: int

    def window(self, shape: tuple[int, ...], dtype: torch.dtype, *, offset: int = 0) -> torch.Tensor: ...

    def put(self, peer: int, tensor: torch.Tensor, *, offset: int = 0) -> None: ...

    def signal(self, peer: int, *, slot: int = 0) -> None: ...

    def wait(self, peer: int, *, slot: int = 0) -> None: ...


def run(tensor: torch.Tensor, group: dist.ProcessGroup | None = None, *, link: Link) -> torch.Tensor:
    """Add up ``tensor`` over all ranks.

    Args:
        tensor: Same shape and floating dtype on every rank; may be empty.
        group: Unused: the link knows the ranks.
        link: One-sided access to the windows of the group.

    Returns:
        The sum, bit for bit the same on every rank.
    """
    flat = tensor.detach().contiguous().view(-1)
    room = link.window_bytes // link.world_size // 256 * 256  # a part of the window for each source
    step = max(room // flat.element_size(), 1)
    pieces = [_add_up(flat[start : start + step], room, link) for start in range(0, flat.numel(), step)]
    return (torch.cat(pieces) if pieces else flat.clone()).view(tensor.shape)


def _add_up(mine: torch.Tensor, room: int, link: Link) -> torch.Tensor:
    peers = [(link.rank + step) % link.world_size for step in range(1, link.world_size)]
    for peer in peers:
        link.put(peer, mine, offset=link.rank * room)
        link.signal(peer, slot=READY)  # release: the data are there before the signal is
    wide = torch.float32 if mine.dtype in (torch.float16, torch.bfloat16) else mine.dtype
    for peer in peers:
        link.wait(peer, slot=READY)  # acquire
    total = torch.zeros(mine.numel(), dtype=wide)
    for source in range(link.world_size):  # in rank order, on every rank
        total += mine if source == link.rank else link.window((mine.numel(),), mine.dtype, offset=source * room)
    for peer in peers:
        link.signal(peer, slot=FREE)
    for peer in peers:
        link.wait(peer, slot=FREE)  # nobody writes the next message over one that is still being read
    return total.to(mine.dtype)
