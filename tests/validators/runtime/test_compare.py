"""Comparing: nothing a candidate returns raises, and nothing wrong passes."""

import pytest
import torch

from kb.validators.operators.spec import Buffer, ErrorModel
from kb.validators.runtime.compare import compare_output

ERROR = ErrorModel(accumulate="float32", c_acc=64, c_out=2)
Y = Buffer("y", ("n",))
WANT = torch.tensor([1.0, -2.0, 3.0, 0.0], dtype=torch.float64)


def verdict(actual: object, want: torch.Tensor = WANT) -> str:
    return compare_output(actual, want, buffer=Y, dtype="float32", error=ERROR, scale=None).verdict


def test_the_correctly_rounded_result_passes() -> None:
    assert verdict(WANT.to(torch.float32)) == "passed"


@pytest.mark.parametrize(
    "actual",
    [
        torch.zeros(4), torch.ones(4), -WANT.float(), WANT.half().float() * 1.001, torch.full((4,), torch.nan),
        torch.tensor([1.0, -2.0, 3.0, torch.nan]), torch.tensor([1.0, -2.0, torch.inf, 0.0]),
    ],
)  # fmt: skip
def test_wrong_values_are_wrong(actual: torch.Tensor) -> None:
    assert verdict(actual) == "wrong_values"


@pytest.mark.parametrize("actual", [torch.ones(3), torch.ones(1), torch.ones(4, 1), torch.ones(0), torch.tensor(1.0)])
def test_a_shape_that_would_broadcast_is_wrong(actual: torch.Tensor) -> None:
    assert verdict(actual) == "wrong_shape"


class Agreeable(torch.Tensor):
    """Answers every comparison in its own favour."""

    def __eq__(self, other: object) -> bool:  # type: ignore[override]
        return True

    __hash__ = torch.Tensor.__hash__


@pytest.mark.parametrize(
    "actual", [WANT, WANT.half(), None, 1.0, [1.0], "x", Agreeable(4), torch.nn.Parameter(WANT.float())]
)
def test_another_dtype_or_type_is_wrong(actual: object) -> None:
    assert verdict(actual) == "wrong_dtype"


def test_expected_infinities_and_nans_must_be_met_with_their_sign() -> None:
    want = torch.tensor([torch.inf, -torch.inf, torch.nan, 1.0], dtype=torch.float64)
    assert verdict(want.float(), want) == "passed"
    assert verdict(-want.float(), want) == "wrong_values"
    assert verdict(torch.tensor([torch.inf, -torch.inf, 0.0, 1.0]), want) == "wrong_values"


def test_integers_must_be_equal() -> None:
    want = torch.tensor([1, 2, 3])
    buffer = Buffer("ids", ("n",), dtype="int64")
    for got, expected in ((want.clone(), "passed"), (torch.tensor([1, 2, 4]), "wrong_values")):
        assert compare_output(got, want, buffer=buffer, dtype="float32", error=ERROR, scale=None).verdict == expected


def test_nothing_to_compare_passes_only_in_the_right_shape() -> None:
    want = torch.empty((0, 8), dtype=torch.float64)
    assert verdict(torch.empty(0, 8), want) == "passed"
    assert verdict(torch.empty(0, 7), want) == "wrong_shape"


def test_an_exact_law_admits_the_output_rounding_alone() -> None:
    want = torch.tensor([257.0, -3.0, 0.0], dtype=torch.float64)  # 257 is no bfloat16: 256 and 258 are as near
    exact = ErrorModel(accumulate="float32", c_acc=200, c_out=2, operand="float16", c_operand=16).for_exact()

    def judged(got: list[float], dtype: torch.dtype, name: str) -> str:
        made = torch.tensor(got, dtype=dtype)
        return compare_output(made, want, buffer=Y, dtype=name, error=exact, scale=torch.full((3,), 9.0)).verdict

    assert judged([256.0, -3.0, 0.0], torch.bfloat16, "bfloat16") == "passed"
    assert judged([257.0, -3.0, 0.0], torch.float32, "float32") == "passed"
    for wrong in ([260.0, -3.0, 0.0], [256.0, -3.03125, 0.0], [256.0, -3.0, 1e-30]):
        assert judged(wrong, torch.bfloat16, "bfloat16") == "wrong_values"
