"""A build step calls a candidate with all that kernels are compiled for; what it leaves behind is judged."""

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kb.validators import operators
from kb.validators.runtime import building
from kb.validators.runtime.sides import Side
from kb.validators.runtime.verdicts import Verdict
from kb.validators.runtime.worker import Worker
from kb.validators.runtime.workplace import Workplace

BOTH = """
import torch

seen = set()


def run(x, weight, bias, tanh=0):
    seen.add(tanh)
    if len(seen) == 2:
        raise ValueError("both forms were asked for")
    return torch.zeros(x.shape[0], weight.shape[0], dtype=x.dtype)
"""


@pytest.fixture
def side() -> Iterator[Side]:
    place = Workplace()
    made = Side(BOTH.encode(), place=place)
    yield made
    made.end()
    place.close()


def test_every_value_of_a_scalar_that_a_law_draws_is_met(side: Side) -> None:
    operator = operators.load("gemm_bias_gelu")
    # Eight coins that fall alike, three times in a row, are none in two million runs.
    drawn = [next(w for w in operator.workloads if w.law == "saturated")] * 3
    side.start(operator, [])
    failed = building.warm_up(side.worker, side.arena, operator, drawn, limit_s=60)
    assert failed is not None
    assert "both forms" in failed


@pytest.mark.parametrize(("unbuilt", "word"), [(False, "rejected"), (True, "needs_review")])
def test_files_of_a_kernel_that_could_not_be_built_to_the_end_ask_for_a_look(unbuilt: bool, word: str) -> None:
    left: Any = SimpleNamespace(blocked=Counter(), patched=list, files_left=lambda: ["cache/half.ptx"])
    verdict = Verdict()
    verdict.on_remains(cast(Worker, left), unbuilt=unbuilt)
    assert verdict.word() == word
    assert "half.ptx" in verdict.details[0]
