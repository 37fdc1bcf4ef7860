"""After a batch a worker answers for its results, and hands over those and no others: with processes on the CPU."""

import platform
from collections.abc import Iterator
from statistics import median

import pytest

from kb.validators import operators
from kb.validators.operators.spec import Workload
from kb.validators.runtime.pairing import Regime, Session, Shape
from kb.validators.runtime.sides import FailedError, Side
from kb.validators.runtime.telemetry import Telemetry
from kb.validators.runtime.workplace import Workplace
from tests.validators.runtime.timed import HONEST

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(platform.system() != "Linux", reason="the sandbox is Linux's"),
]

OPERATOR = operators.load("rmsnorm")
WORKLOAD = Workload({"num_tokens": 16, "hidden_size": 1024}, "float32")
SIDES = ("candidate", "baseline")
SHAPE = Shape(slots=4, spares=1, batches=1, sweep_bytes=1 << 16, pairs=2, warm_ups=1)

AFTER_THE_ANSWER = """
import gc
import torch

owed = []

def settle():
    while owed:
        x, weight, eps, y = owed.pop()
        y.copy_(torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, eps))

def first(original):
    def handed(session, message):
        settle()
        return original(session, message)
    return handed

def run(x, weight, eps=1e-6):
    y = torch.empty_like(x)
    owed.append((x, weight, eps, y))
    return y

for one in gc.get_objects():
    if isinstance(one, dict) and "outputs_of" in one and "batch" in one:
        for name in NAMES:
            one[name] = first(one[name])
"""
"""Does nothing in a batch, and all of it before results are handed over: right values at no time, by the clock."""


@pytest.fixture(scope="module")
def place() -> Iterator[Workplace]:
    made = Workplace()
    yield made
    made.close()


def session(place: Workplace, source: str, made: list[Side]) -> Session:
    sides = [Side(one.encode(), place=place, limit_s=30) for one in (source, HONEST)]
    made += sides
    for side in sides:
        side.commits = True  # as on a GPU
        side.start(OPERATOR, [WORKLOAD])
    return Session(
        OPERATOR, WORKLOAD, regime=Regime("cold", "eager"), shape=SHAPE, candidate=sides[0], baseline=sides[1],
        telemetry=Telemetry(None),
    )  # fmt: skip


@pytest.fixture
def made() -> Iterator[list[Side]]:
    sides: list[Side] = []
    yield sides
    for side in sides:
        side.end()


def test_honest_results_are_those_that_were_answered_for(place: Workplace, made: list[Side]) -> None:
    blocks = session(place, HONEST, made).run()
    assert [block["who"] for block in blocks] == ["candidate", "baseline", "baseline", "candidate"]
    assert all(batch["tail_us"] > 0 for block in blocks for batch in block["batches"])
    assert made[0].commitment is not None
    assert all(len(numbers) == 1 and int(numbers[0]) != 0 for numbers in made[0].commitment.numbers.values())


def test_who_computes_after_his_answer_hands_over_other_results(place: Workplace, made: list[Side]) -> None:
    source = AFTER_THE_ANSWER.replace("NAMES", '("outputs_of", "before", "inputs", "state")')
    with pytest.raises(FailedError) as caught:
        session(place, source, made).run()
    assert caught.value.reason == "late_write"


def test_who_computes_for_his_answer_takes_longer_for_it(place: Workplace, made: list[Side]) -> None:
    slow = AFTER_THE_ANSWER.replace("NAMES", '("commit",)').replace("def settle():", "import time\n\ndef settle():")
    slow = slow.replace("        x, weight", "        time.sleep(0.25)\n        x, weight")
    blocks = session(place, slow, made).run()
    tails = {who: [b["tail_us"] for one in blocks if one["who"] == who for b in one["batches"]] for who in SIDES}
    assert min(tails["candidate"]) > 950_000  # four calls
    assert median(tails["baseline"]) < min(tails["candidate"])
