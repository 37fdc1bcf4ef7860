"""The arbiter draws as the plan says, compares as the judge does, and is asked only while the candidate stands."""

from collections.abc import Iterator

import pytest
import torch

from kb.validators import operators
from kb.validators.operators.spec import DTYPES, Workload
from kb.validators.runtime import plan
from kb.validators.runtime.assessing import ArbiterProcess, DeviceExpectation
from kb.validators.runtime.errors import JudgeError
from kb.validators.runtime.expectation import Expectation, Expected, ReferenceWorker
from kb.validators.runtime.workplace import Workplace

SMALL, LARGE = (
    Workload({"num_tokens": 3, "hidden_size": 32}, "float32"),
    Workload({"num_tokens": 64, "hidden_size": 512}, "bfloat16"),
)
OPERATOR = operators.load("rmsnorm")


@pytest.fixture(scope="module")
def stops() -> list[bool]:
    return []


@pytest.fixture(scope="module")
def arbiter(stops: list[bool]) -> Iterator[ArbiterProcess]:
    made = ArbiterProcess("rmsnorm", "cpu", pause=stops.append)
    yield made
    made.end()


def answer(expected: Expected) -> bytes:
    """Compute rmsnorm of the arguments' bytes as an honest candidate would."""
    tensors = []
    for one in expected.arguments:
        if "tensor" in one:
            flat = torch.frombuffer(bytearray(one["data"]), dtype=torch.uint8).view(DTYPES[one["tensor"]["dtype"]])
            tensors.append(torch.as_strided(flat, one["tensor"]["shape"], one["tensor"]["strides"]))
    (y,) = OPERATOR.reference(*tensors, 1e-6)
    return bytes(y.to(tensors[0].dtype).contiguous().reshape(-1).view(torch.uint8).numpy())


def referred(place: Workplace, drawn: plan.Plan) -> Expectation:
    """Have a reference worker compute a plan."""
    worker = ReferenceWorker("rmsnorm", place.folder("reference"))
    try:
        return worker.compute(drawn, limit_s=120)
    finally:
        worker.end()


def test_large_cases_come_from_the_arbiter_and_small_ones_from_files(
    arbiter: ArbiterProcess, stops: list[bool]
) -> None:
    drawn = plan.draw("rmsnorm", (SMALL, LARGE), master_seed=7)
    place = Workplace()
    try:
        small = referred(place, drawn.only(frozenset({0})))
        everything = referred(place, drawn)
        mixed = DeviceExpectation(small, arbiter, drawn, frozenset({1}))
        for case in drawn.cases:
            expected, known = mixed.case(case.index), everything.case(case.index)
            assert [one.get("data") for one in expected.arguments] == [one.get("data") for one in known.arguments]
            data = answer(expected)
            workload = drawn.workloads[case.workload]
            right, wrong = (mixed.compare(OPERATOR, workload, expected, [some])[0] for some in (data, bytes(len(data))))
            if case.workload == 1:
                assert expected.outputs[0].device.type == "meta"
            assert right.verdict == "passed"
            assert wrong.verdict == "wrong_values"
            assert right == Expectation.compare(everything, OPERATOR, workload, known, [data])[0]
    finally:
        place.close()
    assert stops[::2] == [True] * (len(stops) // 2)
    assert stops[1::2] == [False] * (len(stops) // 2)


def test_outputs_of_a_batch_are_judged_by_the_seeds_of_their_contents(arbiter: ArbiterProcess) -> None:
    ones = arbiter.draw(LARGE, 11)
    data = answer(Expected(ones, (), ()))
    assert arbiter.check(LARGE, [data], drawn={"seed": 11})[0].verdict == "passed"
    assert arbiter.check(LARGE, [data], drawn={"seed": 12})[0].verdict == "wrong_values"


@pytest.mark.parametrize("data", [b"", b"\0" * 7, b"\xff" * (64 * 512 * 2)], ids=["nothing", "too short", "all NaN"])
def test_bytes_that_are_no_result_are_refused(arbiter: ArbiterProcess, data: bytes) -> None:
    arbiter.draw(LARGE, 11)
    assert arbiter.check(LARGE, [data], drawn={"seed": 11})[0].verdict in ("wrong_values", "wrong_dtype")


def test_a_case_asked_for_out_of_order_is_the_judges_own_mistake(arbiter: ArbiterProcess) -> None:
    drawn = plan.draw("rmsnorm", (SMALL, LARGE), master_seed=8)
    large = [case.index for case in drawn.cases if case.workload == 1]
    mixed = DeviceExpectation(Expectation.__new__(Expectation), arbiter, drawn, frozenset({1}))
    with pytest.raises(JudgeError, match="out of order"):
        mixed.case(large[1])


def test_a_spec_that_fails_is_no_verdict(arbiter: ArbiterProcess) -> None:
    with pytest.raises(JudgeError, match="KeyError"):
        arbiter.draw(Workload({"num_tokens": 1, "hidden_size": 8}, "bfloat16", law="none"), 1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="computes on the device here")
def test_a_comparison_that_fell_back_to_the_processor_says_why(arbiter: ArbiterProcess) -> None:
    before = len(arbiter.fell_back)
    data = answer(Expected(arbiter.draw(LARGE, 11), (), ()))
    arbiter.check(LARGE, [data], drawn={"seed": 11})
    (why,) = arbiter.fell_back[before:]
    assert why.startswith(("AssertionError: ", "RuntimeError: "))
