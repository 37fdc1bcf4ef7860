"""All-reduce over two binary trees, each with half of the message: log2(p) depth, and no rank idles as a leaf.

Protocol of ``all_reduce``: ``run(tensor, group=None)`` returns the sum over the ranks of ``group`` as a new tensor of
the same shape and dtype; the input is left alone. All ranks call it in the same order.
"""

from dataclasses import dataclass, field

import torch
import torch.distributed as dist


@dataclass
class Node:
    """A rank's place in one tree."""

    parent: int | None = None
    children: list[int] = field(default_factory=list)


def run(
    tensor: torch.Tensor, group: dist.ProcessGroup | None = None, *, num_chunks: int = 2
) -> torch.Tensor:
    """Add up ``tensor`` over all ranks.

    Args:
        tensor: Same shape and floating dtype on every rank; may be empty.
        group: Ranks that take part; None for all.
        num_chunks: Pieces that each half is cut into; while one is on its way up, the next one follows.

    Returns:
        The sum, bit for bit the same on every rank: each piece is finished at one root and copied from there.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    flat = tensor.detach().contiguous().view(-1)
    halves = torch.tensor_split(flat, 2)
    nodes = [tree(world, rank, second=bool(which)) for which in (0, 1)]
    work = [
        (node, piece.clone())
        for chunk in range(num_chunks)
        for node, half in zip(nodes, halves, strict=True)
        if (piece := torch.tensor_split(half, num_chunks)[chunk]).numel()
    ]
    sends: list[dist.Work] = []
    arrivals = [[(child, *_receiving(piece, child, group)) for child in node.children] for node, piece in work]
    for (node, piece), awaited in zip(work, arrivals, strict=True):
        for _, request, summand in awaited:
            request.wait()
            piece.copy_(_add(piece, summand))
        if node.parent is not None:
            sends.append(_sending(piece, node.parent, group))
    _finish(sends)  # what went up may be overwritten only now
    for node, piece in work:
        if node.parent is not None:
            _started(dist.irecv(piece, _global(group, node.parent), group)).wait()
        sends += [_sending(piece, child, group) for child in node.children]
    _finish(sends)
    result = [torch.empty_like(half) for half in halves]
    for which, half in enumerate(result):
        parts = [piece for node, piece in work if node is nodes[which]]
        if parts:
            half.copy_(torch.cat(parts))
    return torch.cat(result).view(tensor.shape)


def tree(world: int, rank: int, *, second: bool) -> Node:
    """Return a rank's place in the first or second tree.

    In the first one, numbered from 1 in order, odd numbers are leaves. The second is its mirror image (an even number of
    ranks) or shifted by one rank, so that leaves of one are inner nodes of the other, but for one rank at most.

    Args:
        world: Ranks.
        rank: Whose place.
        second: Which tree.
    """

    def renamed(number: int) -> int:
        if not second:
            return number - 1
        return world - number if world % 2 == 0 else (number - 2) % world

    node = Node()

    def build(first: int, last: int, parent: int | None) -> None:
        if first > last:
            return
        # The number with the most trailing zeros of the range: middle of a full tree, whatever is missing at the end.
        root = max(range(first, last + 1), key=lambda number: number & -number)
        if renamed(root) == rank:
            node.parent = None if parent is None else renamed(parent)
        if parent is not None and renamed(parent) == rank:
            node.children.append(renamed(root))
        build(first, root - 1, root)
        build(root + 1, last, root)

    build(1, world, None)
    return node


def _receiving(like: torch.Tensor, peer: int, group: dist.ProcessGroup | None) -> tuple[dist.Work, torch.Tensor]:
    into = torch.empty_like(like)
    return _started(dist.irecv(into, _global(group, peer), group)), into


def _sending(piece: torch.Tensor, peer: int, group: dist.ProcessGroup | None) -> dist.Work:
    return _started(dist.isend(piece, _global(group, peer), group))


def _finish(sends: list[dist.Work]) -> None:
    for one in sends:
        one.wait()
    sends.clear()


def _started(work: dist.Work | None) -> dist.Work:
    if work is None:
        raise RuntimeError("this process is not in the group")
    return work


def _add(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    wide = torch.float32 if one.dtype in (torch.float16, torch.bfloat16) else one.dtype
    return (one.to(wide) + other.to(wide)).to(one.dtype)


def _global(group: dist.ProcessGroup | None, rank: int) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)
