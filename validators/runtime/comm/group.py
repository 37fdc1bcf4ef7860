"""``torch.distributed`` over the switch: a process group whose sends, receives and collectives go through the judge.

Schemes are written against ``torch.distributed`` and run unchanged over gloo, NCCL or this. Lives in the candidate's
process. A collective is announced to the switch as what it is: that is how delegation is known.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from kb.validators.runtime.comm.frames import KINDS, unpacked
from kb.validators.runtime.comm.link import Link, Pending, bytes_of, fill

BACKEND = "switch"

Finish = Callable[[list[bytes]], None]


class Transfer(dist.Work):
    """Something under way; ``wait`` ends it."""

    def __init__(self, link: Link, pending: Pending, finish: Callable[[bytes], None] | None = None) -> None:
        super().__init__()
        self._link, self._pending, self._finish = link, pending, finish

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait; how long is the judge's to say, so ``timeout`` is not looked at."""
        data = self._link.wait(self._pending)
        if self._finish is not None:
            finish, self._finish = self._finish, None
            finish(data)
        return True

    def is_completed(self) -> bool:
        """Tell whether ``wait`` would return at once."""
        return self._link.completed(self._pending)

    def is_success(self) -> bool:
        """Tell whether it is over and has not failed."""
        return self.is_completed() and self._pending.error is None


class SwitchGroup(dist.ProcessGroup):
    """The ranks of one group, over one link."""

    def __init__(self, link: Link, members: Sequence[int]) -> None:
        super().__init__(list(members).index(link.rank), len(members))  # type: ignore[call-arg]
        self._link, self._members = link, tuple(members)
        self._mask = sum(1 << one for one in members)
        self._number = 0

    def getBackendName(self) -> str:  # noqa: N802 - the name that torch calls
        """Return the name under which torch knows this."""
        return BACKEND

    def send(self, tensors: list[torch.Tensor], to: int, tag: int = 0) -> dist.Work:
        """Send one tensor to a rank of the group."""
        return Transfer(self._link, self._link.send(tensors[0], self._members[to], tag))

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int = 0) -> dist.Work:
        """Receive one tensor from a rank of the group."""
        return Transfer(self._link, self._link.recv(tensors[0], self._members[source], tag))

    def _collect(self, kind: str, parts: list[bytes], finish: Finish) -> dist.Work:
        self._number += 1
        pending = self._link.collect(KINDS.index(kind), self._mask, self._number, parts)
        return Transfer(self._link, pending, lambda data: finish(unpacked(data)))

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> dist.Work:  # type: ignore[override]  # noqa: ANN401
        """Reduce over the group, in place."""
        (own,) = tensors
        return self._collect("all_reduce", [bytes_of(own)], lambda parts: _reduce(own, parts, opts))

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> dist.Work:  # type: ignore[override]  # noqa: ANN401
        """Send the root's tensor to all."""
        (own,), root = tensors, opts.rootRank
        mine = [bytes_of(own)] if root == self.rank() else [b""]
        return self._collect("broadcast", mine, lambda parts: fill(own, parts[root]))

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> dist.Work:  # type: ignore[override]  # noqa: ANN401
        """Reduce to the root, in place."""
        (own,), root = tensors, opts.rootRank
        parts = [bytes_of(own) if one == root else b"" for one in range(self.size())]

        def finish(found: list[bytes]) -> None:
            if root == self.rank():
                _reduce(own, found, opts)

        return self._collect("reduce", parts, finish)

    def allgather(  # type: ignore[override]
        self,
        outputs: list[list[torch.Tensor]],
        inputs: list[torch.Tensor],
        opts: Any = None,  # noqa: ANN401
    ) -> dist.Work:
        """Gather tensors of one shape."""
        return self._collect("all_gather", [bytes_of(inputs[0])], lambda parts: _each(outputs[0], parts))

    def _allgather_base(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> dist.Work:  # noqa: ANN401
        return self._collect("all_gather", [bytes_of(given)], lambda parts: fill(output, b"".join(parts)))

    def reduce_scatter(  # type: ignore[override]
        self,
        outputs: list[torch.Tensor],
        inputs: list[list[torch.Tensor]],
        opts: Any = None,  # noqa: ANN401
    ) -> dist.Work:
        """Reduce a list of tensors, one for each rank."""
        parts = [bytes_of(one) for one in inputs[0]]
        return self._collect("reduce_scatter", parts, lambda found: _reduce(outputs[0], found, opts))

    def _reduce_scatter_base(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> dist.Work:  # noqa: ANN401
        parts = [bytes_of(one) for one in given.reshape(-1).chunk(self.size())]
        return self._collect("reduce_scatter", parts, lambda found: _reduce(output, found, opts))

    def alltoall_base(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        to: list[int],
        of: list[int],
        opts: Any = None,  # noqa: ANN401
    ) -> dist.Work:
        """Exchange slices along the first axis; ``to`` and ``of`` are output and input splits, empty for equal ones."""
        splits = of or [given.shape[0] // self.size()] * self.size()
        parts = [bytes_of(one) for one in torch.split(given, splits)]
        return self._collect("all_to_all", parts, lambda found: fill(output, b"".join(found)))

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> dist.Work:  # noqa: ANN401
        """Exchange one tensor with each rank."""
        return self._collect("all_to_all", [bytes_of(one) for one in inputs], lambda found: _each(outputs, found))

    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> dist.Work:  # type: ignore[override]  # noqa: ANN401
        """Gather at the root."""
        parts = [bytes_of(inputs[0]) if one == opts.rootRank else b"" for one in range(self.size())]
        return self._collect("gather", parts, lambda found: _each(outputs[0], found) if outputs else None)

    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> dist.Work:  # type: ignore[override]  # noqa: ANN401
        """Give each rank its tensor of the root's list."""
        parts = [bytes_of(one) for one in inputs[0]] if inputs else [b""]
        return self._collect("scatter", parts, lambda found: fill(outputs[0], found[opts.rootRank]))

    def barrier(self, opts: Any = None) -> dist.Work:  # noqa: ANN401
        """Wait for all."""
        return self._collect("barrier", [b""], lambda _: None)


def _each(outputs: list[torch.Tensor], parts: list[bytes]) -> None:
    for one, data in zip(outputs, parts, strict=True):
        fill(one, data)


def _reduce(output: torch.Tensor, parts: list[bytes], opts: Any) -> None:  # noqa: ANN401
    """Reduce in rank order, in the dtype of the data, into ``output``."""
    total: torch.Tensor | None = None
    name = "SUM" if opts is None else str(opts.reduceOp.op if hasattr(opts.reduceOp, "op") else opts.reduceOp)
    for data in parts:
        part = torch.empty_like(output)
        fill(part, data)
        total = part if total is None else _combined(name.rpartition(".")[2], total, part)
    if total is not None:
        output.copy_(total / len(parts) if name.endswith("AVG") else total)


def _combined(name: str, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    made: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
        "SUM": torch.add, "AVG": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum,
    }  # fmt: skip
    if name not in made:
        raise ValueError(f"the switch cannot reduce by {name}")
    return made[name](one, other)


def connect(link: Link, world_size: int, subsets: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], Any]:
    """Make this process a rank of ``torch.distributed`` over the switch.

    Args:
        link: This rank's link.
        world_size: Ranks of the job.
        subsets: Groups that calls will be made with.

    Returns:
        Members to group, for those that this rank is in.
    """

    def make(opts: Any, _: Any) -> SwitchGroup:  # noqa: ANN401 - c10d's own types
        return SwitchGroup(link, opts.global_ranks_in_group or range(world_size))

    dist.Backend.register_backend(BACKEND, make, extended_api=True, devices=["cpu"])
    dist.init_process_group(BACKEND, store=HashStore(), rank=link.rank, world_size=world_size)
    return {members: dist.new_group(list(members)) for members in subsets if link.rank in members}
