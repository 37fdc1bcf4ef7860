"""Every communication entry is accepted by the comm oracle; over gloo too, where it needs no windows."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from kb.validators import operators
from kb.validators.runtime.comm.judging import judge_comm
from kb.validators.runtime.report import Report

pytestmark = pytest.mark.timeout(120)

COMM = Path(__file__).resolve().parents[2] / "entries" / "comm"
ENTRIES = sorted(str(file.parent.relative_to(COMM)) for file in COMM.glob("*/*/entry.toml"))
OVER_GLOO = ("all_reduce/double-binary-tree", "all_reduce_rmsnorm/one-shot", "all_to_all/expert-dispatch-combine")
FEWEST = ("all_reduce/ring", "all_reduce/two-shot", "all_reduce/double-binary-tree", "reduce_scatter/direct",
          "reduce_scatter/ring-behind-gemm")  # fmt: skip
"""Schemes that move what must be moved and not a byte more, as their texts say."""


def facts(name: str) -> dict[str, Any]:
    return tomllib.loads((COMM / name / "entry.toml").read_text(encoding="utf-8"))


def judged(name: str, *, transport: str | None = None, every: int = 2) -> Report:
    spec = operators.load(facts(name)["operator"])
    asked = [one for one in spec.workloads if one.use == "awkward"][::every]
    source = (COMM / name / "scheme.py").read_bytes()
    return judge_comm(spec.name, source, transport=transport, workloads=asked, calls=(2, 2), call_limit_s=20)


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_is_accepted_and_moves_what_it_says(name: str) -> None:
    found = judged(name)
    assert (found.verdict, found.reasons) == ("accepted", ()), found.details
    assert found.delegates == (), "a scheme here is no call of the library"
    assert found.comm is not None
    provided = facts(name)["contracts"]["provides"]
    said = next((token.partition(":")[2] for token in provided if token.startswith("wire:")), None)
    assert found.comm["wire"] == said, "a declared precision stands in the entry's contracts, and nothing else does"
    for row in found.comm["workloads"]:
        assert row["sent_bytes"] >= row["least_bytes"]
        if name in FEWEST:
            assert row["sent_bytes"] == row["least_bytes"], row["workload"]


@pytest.mark.parametrize("name", OVER_GLOO)
def test_an_entry_is_accepted_over_gloo(name: str) -> None:
    found = judged(name, transport="gloo", every=4)
    assert (found.verdict, found.reasons) == ("accepted", ()), found.details


def test_there_are_schemes_of_every_operator() -> None:
    assert len(ENTRIES) >= 8
    assert {facts(name)["operator"] for name in ENTRIES} == set(operators.COMM)
