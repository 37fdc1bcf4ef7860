"""Communication entries compute what they say on every rank: three gloo processes, each with its own inputs.

Run as a script, this file is one of the ranks: ``test_schemes.py RANK FOLDER``.
"""

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.distributed as dist

COMM = Path(__file__).resolve().parents[2] / "entries" / "comm"
WORLD = 3
GROUPS = {"all": (0, 1, 2), "last-two": (1, 2)}
"""A group that does not start at rank 0 shows a rank taken for a global one."""

REDUCERS = ("one-shot", "two-shot", "size-crossover", "size-crossover-large", "ring", "halving-doubling",
            "double-binary-tree", "hierarchical", "hierarchical-one-node")  # fmt: skip
SCATTERERS = ("reduce_scatter/direct", "reduce_scatter/ring-behind-gemm")
NORMS = ("fused-scatter-norm-gather", "one-shot")
SHAPES: tuple[tuple[int, ...], ...] = ((0,), (1,), (2,), (7,), (3, 5), (2, 0, 4), (17, 33))
DTYPES = {"float64": 1e-14, "float32": 3e-7, "bfloat16": 0.01, "float16": 0.002}
"""Error allowed for a sum of three, relative to the sum of magnitudes: a few roundings of the dtype."""

Call = Callable[..., torch.Tensor]
Results = list[dict[str, torch.Tensor]]


def load(name: str) -> ModuleType:
    """Import an entry's ``scheme.py`` under a private name."""
    private = "scheme_under_test_" + name.replace("/", "_").replace("-", "_")
    spec = importlib.util.spec_from_file_location(private, COMM / name / "scheme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tensor(shape: tuple[int, ...], dtype: str, rank: int, salt: int = 0) -> torch.Tensor:
    """Make the input of one rank; other ranks can make it too, to know the right answer."""
    draw = torch.Generator().manual_seed(1000 * rank + salt)
    return torch.randn(shape, generator=draw, dtype=torch.float64).to(getattr(torch, dtype))


def tokens_of(rank: int, group: str) -> int:
    """Say how many tokens a rank has: uneven, and none at one of the ranks."""
    return {"all": (5, 0, 3), "last-two": (0, 4, 7)}[group][rank]


def routed(rank: int, group: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Make tokens, expert ids (some unused) and weights of one rank."""
    count = tokens_of(rank, group)
    draw = torch.Generator().manual_seed(77 + rank)
    ids = torch.stack([torch.randperm(6, generator=draw)[:3] for _ in range(count)]) if count else torch.empty(0, 3)
    ids = ids.to(torch.int64)
    ids[:1, 2] = -1  # a choice that is not used
    ids[1:2] = torch.tensor([0, 1, -1])  # two experts on one rank: the token travels once
    ids[2:3] = -1  # a padded row
    return tensor((count, 8), "float32", rank, 5), ids, torch.rand(count, 3, generator=draw)


def expert(index: int, rows: torch.Tensor) -> torch.Tensor:
    """Apply expert ``index``: not linear, and different for each."""
    return torch.tanh(rows * (index + 1)) + index


def weight_of_consumer() -> torch.Tensor:
    """Make the weight that the consumer of gathered rows multiplies with."""
    return tensor((4, 6), "float32", 99)


def main(rank: int, folder: Path) -> None:
    """Be one rank: run every scheme in both groups and write what came out."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=WORLD)
    groups = {name: dist.new_group(list(ranks)) for name, ranks in GROUPS.items()}
    groups["all"] = None  # the default group is given as None
    out: dict[str, torch.Tensor] = {}
    for name, group in groups.items():
        if rank in GROUPS[name]:
            run_reducers(out, rank, name, group)
            run_others(out, rank, name, group)
    torch.save(out, folder / f"rank{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def reducers() -> dict[str, Call]:
    """Return the all-reduce schemes, the crossover one once on each side."""
    crossover: Call = load("all_reduce/size-crossover").run

    hierarchical: Call = load("all_reduce/hierarchical").run
    named = ("one-shot", "two-shot", "ring", "halving-doubling", "double-binary-tree", "hierarchical")
    return {name: load(f"all_reduce/{name}").run for name in named} | {
        "size-crossover": crossover,
        "size-crossover-large": partial(crossover, latency_s=1e-30),
        "hierarchical-one-node": partial(hierarchical, local_size=3),
    }


def run_reducers(out: dict[str, torch.Tensor], rank: int, name: str, group: dist.ProcessGroup | None) -> None:
    """Run all all-reduce schemes at all shapes and dtypes, and one transposed input."""
    for scheme, run in reducers().items():
        for dtype in DTYPES:
            for shape in SHAPES:
                given = tensor(shape, dtype, rank)
                kept = given.clone()
                out[f"{scheme}/{name}/{dtype}/{shape}"] = run(given, group)
                assert torch.equal(given, kept), "the input was changed"
        out[f"{scheme}/{name}/transposed"] = run(tensor((6, 4), "float32", rank).t(), group)


def run_others(out: dict[str, torch.Tensor], rank: int, name: str, group: dist.ProcessGroup | None) -> None:
    """Run the fused norm, dispatch and combine, and the overlapped gather."""
    ranges = load("all_reduce_rmsnorm/fused-scatter-norm-gather").token_range
    place, world = GROUPS[name].index(rank), len(GROUPS[name])
    for scheme in NORMS:
        norm = load(f"all_reduce_rmsnorm/{scheme}").run
        for tokens in (0, 1, 2, 11):
            mine = ranges(tokens, place, world)
            residual = tensor((tokens, 16), "float32", 50)[mine.start : mine.stop]
            normed, after = norm(
                tensor((tokens, 16), "float32", rank), residual, tensor((16,), "float32", 51), 1e-6, group
            )
            out[f"normed/{scheme}/{name}/{tokens}"], out[f"residual/{scheme}/{name}/{tokens}"] = normed, after
    dispatch = load("all_to_all/expert-dispatch-combine")
    out[f"moe/{name}"] = dispatch.dispatch_combine(*routed(rank, name), expert, 6, group)
    for scheme in SCATTERERS:
        scatter = load(scheme).run
        for tokens in (0, 2, 7):
            given = tensor((tokens, 4), "float32", rank, 13)
            out[f"{scheme}/{name}/{tokens}"] = scatter(given, group)
    late = load("reduce_scatter/ring-behind-gemm").run
    given = tensor((7, 4), "float32", rank, 13)
    out[f"produced/{name}"] = late(given, group, produce=lambda part: part @ weight_of_consumer())
    rows = tensor((tokens_of(rank, name), 4), "float32", rank, 9)
    out[f"all_gather/bruck/{name}"] = load("all_gather/bruck").run(rows, group)
    gather = load("all_gather/chunked-overlap").run
    for chunks in (1, 3, 8):
        out[f"gather/{name}/{chunks}"] = gather(rows, group, num_chunks=chunks)
        out[f"consumed/{name}/{chunks}"] = gather(
            rows, group, num_chunks=chunks, consume=lambda part: part @ weight_of_consumer()
        )


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Run the three ranks once and give what each of them computed."""
    folder = tmp_path_factory.mktemp("ranks")
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    # Without this gloo looks the host's name up, which fails on a machine without a network.
    environment = os.environ | ({"GLOO_SOCKET_IFNAME": loopback} if loopback else {})
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, str(rank), str(folder)],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        for rank in range(WORLD)
    ]
    try:
        for process in ranks:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors.decode(errors="replace")
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(WORLD)]


GROUP = pytest.mark.parametrize("group", sorted(GROUPS))


@GROUP
@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("scheme", REDUCERS)
def test_every_rank_gets_the_sum(results: Results, scheme: str, dtype: str, group: str) -> None:
    for shape in SHAPES:
        parts = [tensor(shape, dtype, rank).double() for rank in GROUPS[group]]
        right, size = sum(parts, torch.zeros(shape, dtype=torch.float64)), sum(p.abs() for p in parts)
        for rank in GROUPS[group]:
            got = results[rank][f"{scheme}/{group}/{dtype}/{shape}"]
            assert got.dtype == getattr(torch, dtype)
            assert got.shape == shape
            assert ((got.double() - right).abs() <= DTYPES[dtype] * size).all()


@GROUP
@pytest.mark.parametrize("scheme", REDUCERS)
def test_all_ranks_round_alike(results: Results, scheme: str, group: str) -> None:
    first, *others = GROUPS[group]
    for dtype in DTYPES:
        for shape in SHAPES:
            key = f"{scheme}/{group}/{dtype}/{shape}"
            assert all(torch.equal(results[first][key], results[rank][key]) for rank in others)


@GROUP
@pytest.mark.parametrize("scheme", REDUCERS)
def test_a_transposed_input_is_summed_in_its_own_shape(results: Results, scheme: str, group: str) -> None:
    right = torch.stack([tensor((6, 4), "float32", rank).t().double() for rank in GROUPS[group]]).sum(0)
    for rank in GROUPS[group]:
        torch.testing.assert_close(results[rank][f"{scheme}/{group}/transposed"].double(), right, rtol=0, atol=1e-6)


def test_the_crossover_is_where_both_schemes_take_equally_long() -> None:
    scheme = load("all_reduce/size-crossover")
    for world in (3, 4, 8, 72):
        size = scheme.crossover_bytes(world, 5e-6, 4e11)
        one = 5e-6 + (world - 1) * size / 4e11
        two = 2 * 5e-6 + 2 * (world - 1) / world * size / 4e11
        assert one == pytest.approx(two)
    assert scheme.crossover_bytes(2, 5e-6, 4e11) == float("inf")


@GROUP
@pytest.mark.parametrize("scheme", NORMS)
@pytest.mark.parametrize("tokens", [0, 1, 2, 11])
def test_the_fused_norm_equals_sum_then_residual_then_norm(
    results: Results, tokens: int, scheme: str, group: str
) -> None:
    hidden = tensor((tokens, 16), "float32", 50).double()
    for rank in GROUPS[group]:
        hidden = hidden + tensor((tokens, 16), "float32", rank).double()
    weight = tensor((16,), "float32", 51).double()
    normed = hidden / torch.sqrt(hidden.square().mean(-1, keepdim=True) + 1e-6) * weight
    ranges = load("all_reduce_rmsnorm/fused-scatter-norm-gather").token_range
    for place, rank in enumerate(GROUPS[group]):
        own = ranges(tokens, place, len(GROUPS[group]))
        got = results[rank]
        torch.testing.assert_close(got[f"normed/{scheme}/{group}/{tokens}"].double(), normed, rtol=2e-6, atol=2e-6)
        torch.testing.assert_close(
            got[f"residual/{scheme}/{group}/{tokens}"].double(), hidden[own.start : own.stop], rtol=1e-6, atol=1e-6
        )


@GROUP
@pytest.mark.parametrize("scheme", SCATTERERS)
@pytest.mark.parametrize("tokens", [0, 2, 7])
def test_every_rank_gets_its_rows_of_the_sum(results: Results, tokens: int, scheme: str, group: str) -> None:
    right = sum(tensor((tokens, 4), "float32", rank, 13).double() for rank in GROUPS[group])
    assert isinstance(right, torch.Tensor)
    for rank, rows in zip(GROUPS[group], torch.tensor_split(right, len(GROUPS[group])), strict=True):
        torch.testing.assert_close(results[rank][f"{scheme}/{group}/{tokens}"].double(), rows, rtol=0, atol=1e-6)


@GROUP
def test_summands_made_just_in_time_are_the_same_sum(results: Results, group: str) -> None:
    summed = torch.stack([tensor((7, 4), "float32", rank, 13).double() for rank in GROUPS[group]]).sum(0)
    right = summed @ weight_of_consumer().double()
    for rank, rows in zip(GROUPS[group], torch.tensor_split(right, len(GROUPS[group])), strict=True):
        torch.testing.assert_close(results[rank][f"produced/{group}"].double(), rows, rtol=0, atol=1e-5)


@GROUP
def test_bruck_gathers_ragged_rows_in_rank_order(results: Results, group: str) -> None:
    right = torch.cat([tensor((tokens_of(rank, group), 4), "float32", rank, 9) for rank in GROUPS[group]])
    for rank in GROUPS[group]:
        assert torch.equal(results[rank][f"all_gather/bruck/{group}"], right)


@pytest.mark.parametrize("world", [1, 2, 3, 4, 5, 6, 7, 8, 13, 16])
def test_the_two_trees_complement_each_other(world: int) -> None:
    tree = load("all_reduce/double-binary-tree").tree
    both = [[tree(world, rank, second=second) for rank in range(world)] for second in (False, True)]
    for nodes in both:
        assert [node.parent for node in nodes].count(None) == 1
        for rank, node in enumerate(nodes):
            assert len(node.children) <= 2
            assert all(nodes[child].parent == rank for child in node.children)
    twice = [rank for rank in range(world) if not both[0][rank].children and not both[1][rank].children]
    assert len(twice) <= world % 2, "a leaf of one tree is an inner node of the other"


@GROUP
def test_dispatch_and_combine_equal_all_experts_at_home(results: Results, group: str) -> None:
    for rank in GROUPS[group]:
        rows, ids, weights = (part.double() for part in routed(rank, group))
        right = torch.zeros_like(rows)
        for token in range(len(rows)):
            for choice in range(3):
                index = int(ids[token, choice])
                if index >= 0:
                    right[token] += weights[token, choice] * expert(index, rows[token])
        torch.testing.assert_close(results[rank][f"moe/{group}"].double(), right, rtol=1e-5, atol=1e-5)


@GROUP
@pytest.mark.parametrize("chunks", [1, 3, 8])
def test_gathered_rows_come_in_rank_order_however_many_chunks(results: Results, chunks: int, group: str) -> None:
    right = torch.cat([tensor((tokens_of(rank, group), 4), "float32", rank, 9) for rank in GROUPS[group]])
    for rank in GROUPS[group]:
        assert torch.equal(results[rank][f"gather/{group}/{chunks}"], right)
        consumed = results[rank][f"consumed/{group}/{chunks}"].double()
        torch.testing.assert_close(consumed, right.double() @ weight_of_consumer().double(), rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
