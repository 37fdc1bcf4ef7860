"""What a bundle judges first: one entry of every operator, what the targets spend most time in before the rest."""

from pathlib import Path
from typing import Any

from kb.config import Root
from kb.service.bundle_order import in_order, shares

STARTER = Root(Path(__file__).parents[2])


def row(entry: str, **axes: int) -> dict[str, Any]:
    workloads = [{"axes": axes, "dtype": "bfloat16"}] if axes else []
    return {"id": entry, "operator": entry.split("/")[1], "workloads": workloads}


def test_one_of_every_operator_comes_before_the_second_of_any() -> None:
    rows = [row("kernel/silu/b"), row("kernel/silu/a"), row("kernel/gelu/a"), row("kernel/softmax/a")]
    ordered = [one["id"] for one in in_order(rows, {"softmax": 0.2, "silu": 0.1})]
    assert ordered == ["kernel/softmax/a", "kernel/silu/a", "kernel/gelu/a", "kernel/silu/b"]
    assert [one["id"] for one in in_order(rows[::-1], {"softmax": 0.2, "silu": 0.1})] == ordered


def test_what_takes_long_to_draw_comes_last() -> None:
    heavy = row("kernel/gemm/a", m=1 << 20, n=1024, k=4096)
    rows = [heavy, row("kernel/gemm/b", m=16, n=16, k=16), row("kernel/silu/a")]
    assert [one["id"] for one in in_order(rows, {"gemm": 1.0})] == ["kernel/gemm/b", "kernel/silu/a", "kernel/gemm/a"]


def test_shares_are_those_of_the_targets_that_can_be_read(tmp_path: Path) -> None:
    found = shares(STARTER)
    assert found["gemm_fp8"] > found["rmsnorm"] > 0
    assert "no_such_operator" not in found
    broken = tmp_path / "entries" / "target" / "x" / "y"
    broken.mkdir(parents=True)
    (broken / "entry.toml").write_text("schema = 1\n", encoding="utf-8")
    assert shares(Root(tmp_path)) == {}


def test_strategies_and_schemes_are_ordered_too() -> None:
    rows = [row("allocation/kv_block_pool/a", pages=8), row("comm/all_reduce/a", ranks=4), row("kernel/silu/a")]
    ordered = [one["id"] for one in in_order(rows, {"kv_block_pool": 0.5, "silu": 0.1})]
    assert ordered == ["allocation/kv_block_pool/a", "kernel/silu/a", "comm/all_reduce/a"]
