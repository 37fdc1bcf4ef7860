"""Outputs of timed calls: coarse against the baseline's, exact against the reference."""

from dataclasses import replace

import pytest
import torch

from kb.validators import operators
from kb.validators.operators.spec import Workload
from kb.validators.runtime.layout import Layout, moving_bytes
from kb.validators.runtime.replies import Claim
from kb.validators.runtime.scrutiny import Result, Scrutiny, alike, form_problem
from kb.validators.runtime.supply import Drawn, Supply, mixed, same_form

OPERATOR = operators.load("rmsnorm")
WORKLOAD = Workload({"num_tokens": 5, "hidden_size": 33}, "float32")


def result(one: torch.Tensor, **changes: object) -> Result:
    name = str(one.dtype).removeprefix("torch.")
    data = bytes(one.contiguous().view(torch.uint8).numpy()) if one.numel() else b""
    claim = Claim(True, "Tensor", True, name, tuple(one.shape), "cpu", 0, len(data))
    return Result((replace(claim, **changes),), (data,))  # type: ignore[arg-type]


def honest(one: Drawn) -> torch.Tensor:
    x, weight, eps = one.arguments
    assert isinstance(x, torch.Tensor)
    assert isinstance(weight, torch.Tensor)
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, float(str(eps)))


@pytest.fixture
def drawn() -> list[Drawn]:
    return Supply(OPERATOR, WORKLOAD, shared=False).begin(4, 2, 3)


def test_right_results_pass_and_the_results_of_other_contents_do_not(drawn: list[Drawn]) -> None:
    right = {i: result(honest(one)) for i, one in enumerate(drawn[:4])}
    look = Scrutiny(OPERATOR, WORKLOAD, kind="cpu")
    assert look.problem(drawn, right, right, chosen=[1], always=[0]) is None
    assert look.checked == 2
    stale = right | {2: right[3]}
    found = look.problem(drawn, stale, right, chosen=[], always=[])
    assert found is not None
    assert (found.reason, found.call, found.values) == ("wrong_values", 2, True)


def test_a_difference_of_rounding_is_alike_and_one_element_of_many_is_not_looked_for(drawn: list[Drawn]) -> None:
    one = honest(drawn[0])
    assert alike(OPERATOR, WORKLOAD, result(one), result(one * (1 + 2e-7)))
    assert not alike(OPERATOR, WORKLOAD, result(one), result(one * 1.01))
    assert not alike(OPERATOR, WORKLOAD, result(one), result(torch.where(one > 1, torch.nan, one)))


def test_an_honest_result_far_from_the_baselines_is_judged_by_the_reference_alone(drawn: list[Drawn]) -> None:
    right = {i: result(honest(one)) for i, one in enumerate(drawn[:4])}
    strange = right | {1: result(honest(drawn[1]) * 3)}
    assert Scrutiny(OPERATOR, WORKLOAD, kind="cpu").problem(drawn, right, strange, chosen=[], always=[]) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"plain": False}, "lazy_result"),
        ({"is_tensor": False}, "wrong_dtype"),
        ({"device": "cuda"}, "wrong_dtype"),
        ({"dtype": "float64"}, "wrong_dtype"),
        ({"shape": (5, 32)}, "forged_protocol"),
    ],
)
def test_the_form_of_a_result_has_to_be_right(changes: dict[str, object], reason: str, drawn: list[Drawn]) -> None:
    found = form_problem(OPERATOR, WORKLOAD, result(honest(drawn[0]), **changes), "cpu")
    assert found is not None
    assert found.reason == reason


def test_too_many_results_are_wrong(drawn: list[Drawn]) -> None:
    one = result(honest(drawn[0]))
    found = form_problem(OPERATOR, WORKLOAD, Result(one.claims * 2, one.data * 2), "cpu")
    assert found is not None
    assert found.reason == "wrong_shape"


def test_seeds_alone_give_the_arguments_of_a_call_again(drawn: list[Drawn]) -> None:
    supply = Supply(OPERATOR, WORKLOAD, shared=False)
    first = supply.begin(4, 2, 3)
    changed = supply.replacement(first[1], 1)
    for one in (*first[:4], changed):
        again = mixed(OPERATOR, WORKLOAD, seed=one.seed, static_seed=one.static_seed, edit_seeds=one.edit_seeds)
        assert same_form(again, one.arguments)
        assert all(torch.equal(a, b) for a, b in zip(again[:2], one.arguments[:2], strict=True))  # type: ignore[arg-type]


def test_where_no_element_may_be_changed_all_contents_are_replaced() -> None:
    operator = operators.load("nms")
    workload = next(w for w in operator.workloads if w.law == "normal" or w.law == next(iter(operator.laws)))
    supply = Supply(operator, workload, shared=False)
    first = supply.begin(2, 1, 2)
    changed = supply.replacement(first[0], 0)
    assert changed.edit_seeds == ()
    assert changed.seed not in {one.seed for one in first}
    assert same_form(changed.arguments, first[0].arguments)


def test_drawing_that_costs_too_much_brings_contents_back_to_other_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kb.validators.runtime.supply.BUDGET_S", 0.0)
    supply = Supply(OPERATOR, WORKLOAD, shared=False)
    supply.begin(4, 2, 10)
    pairs = [(one.seed, one.static_seed) for _ in range(6) for one in supply.several(1, 4)[0]]
    assert len(set(pairs)) == len(pairs)
    assert len({seed for seed, _ in pairs}) < len(pairs)


def test_every_slot_has_places_of_its_own_and_shared_weights_have_one(drawn: list[Drawn]) -> None:
    own = Layout(drawn, slots=4, moving=(0,), shared=())
    places = [(p.offset, p.offset + p.size_bytes) for row in own.places for p in row.values()]
    assert all(a[1] <= b[0] or b[1] <= a[0] for i, a in enumerate(places) for b in places[:i])
    assert [sorted(row) for row in own.places] == [[0, 1]] * 4 + [[0]] * 2
    assert len(own.lasting()) == 4
    shared = Layout(drawn, slots=4, moving=(0,), shared=(1,))
    assert len({row[1].offset for row in shared.places[:4]}) == 1
    assert len(shared.lasting()) == 1
    (message,) = list(shared.messages())
    assert [len(message[name]) for name in ("slots", "spares")] == [4, 2]
    assert moving_bytes(drawn[0], (0,))[0] == bytes(drawn[0].arguments[0].numpy())  # type: ignore[attr-defined]
