"""The list of kernels that fall short of the roofline, and of readmes that say nothing of it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kb.config import Root
from kb.store.records import Filed
from tests.gpu import shortfalls

FileRecord = Callable[..., Filed]
WriteSilu = Callable[..., str]

GPU = {"name": "NVIDIA H200", "arch": "sm_90", "uuid": "GPU-1", "boot_id": "b1"}
SOFTWARE = {"python": "3.12.3", "torch": "2.11.0+cu130", "triton": "3.6.0", "numpy": "2.3.1"}


def figure(timing: dict[str, Any], roofline: float, bound: str, n: int = 4096) -> dict[str, Any]:
    one = copy.deepcopy(timing)
    one["workload"]["axes"] = {"n": n}
    return one | {"roofline": roofline, "bound": bound}


def test_kernels_below_their_goal_are_listed_with_what_their_readmes_say(
    root: Root,
    write_silu: WriteSilu,
    file_record: FileRecord,
    timing: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = {
        "good": [figure(timing, 0.3, "memory", 1), figure(timing, 0.86, "memory")],
        "bound-by-arithmetic": [figure(timing, 0.71, "compute")],
        "launched": [figure(timing, 0.1, "launch")],
        "silent": [figure(timing, 0.6, "memory")],
        "says-why": [figure(timing, 0.2, "memory", 1), figure(timing, 0.5, "compute")],
    }
    for slug, timings in figures.items():
        write_silu(root, slug, language="triton")
        file_record(root, f"kernel/silu/{slug}", device=GPU, software=SOFTWARE, timing=timings)
    readme = root.entries / "kernel/silu/says-why/README.md"
    readme.write_text(
        "# SiLU\n\n**Why.** It is fast. It stays at half of the\nfloor: exp is slow. Take it.\n", encoding="utf-8"
    )
    assert shortfalls.main(["--root", str(root.path)]) == 1
    shown = capsys.readouterr()
    first, second = shown.out.splitlines()
    assert first.startswith("kernel/silu/silent: 60 % of the memory floor at best, goal 85 %")
    assert first.endswith(": missing")
    assert second.startswith("kernel/silu/says-why: 50 % of the compute floor at best, goal 70 %")
    assert second.endswith("2 figures): It stays at half of the floor: exp is slow.")
    assert "2 kernels fall short, 1 of their readmes" in shown.err
    assert shortfalls.main(["--root", str(root.path), "--device", "H100"]) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# Roofline\n\nFast.", "missing"),
        ("It reaches 61 % of the copy bandwidth. Use it.", "It reaches 61 % of the copy bandwidth."),
        ("It falls short at one token. It is small.", "It falls short at one token."),
        ("In short it is a norm.", "missing"),
        ("", "missing"),
    ],
)
def test_a_sentence_about_the_floor_is_found(text: str, said: str) -> None:
    assert shortfalls.sentence(text) == said
