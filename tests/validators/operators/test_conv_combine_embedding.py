"""The convolution over sequences, the sum over experts and the token embedding say what other formulations say."""

import pytest
import torch

from kb.validators import operators
from kb.validators.operators.spec import Arguments, Workload, generator
from kb.validators.runtime.compare import compare_call

NAMES = ("causal_conv1d", "embedding", "moe_combine")
CONV = {"num_seqs": 2, "num_tokens": 9, "num_channels": 5, "width": 4, "state_len": 3}
MOE = {"num_tokens": 6, "hidden_size": 7, "top_k": 4}
TABLE = {"num_tokens": 40, "hidden_size": 6, "vocab_size": 64}


def draw(name: str, axes: dict[str, int], dtype: str = "float32", law: str = "normal") -> Arguments:
    """Draw one call of an operator."""
    return operators.load(name).laws[law](axes, dtype, generator(3))


def tensors(arguments: Arguments) -> list[torch.Tensor]:
    return [one for one in arguments if isinstance(one, torch.Tensor)]


def verdicts(name: str, arguments: Arguments, actual: object, dtype: str = "float32") -> list[str]:
    """Return the verdict of every output."""
    return [one.verdict for one in compare_call(operators.load(name), arguments, actual, dtype=dtype)]


def solid(name: str) -> list[Workload]:
    """Return the awkward workloads that have something in them."""
    return [w for w in operators.load(name).workloads if w.use == "awkward" and 0 not in w.axes.values()]


def test_the_convolution_is_that_of_torch_over_state_and_tokens() -> None:
    x, state, weight = tensors(draw("causal_conv1d", CONV))
    y, new_state = operators.load("causal_conv1d").reference(x, state, weight, 1)
    known = torch.cat([state, x], 1).double()
    want = torch.nn.functional.conv1d(known.transpose(1, 2), weight.double()[:, None], groups=5).transpose(1, 2)
    torch.testing.assert_close(y, torch.nn.functional.silu(want), rtol=1e-12, atol=1e-12)
    assert torch.equal(new_state.float(), x[:, -3:])


@pytest.mark.parametrize("cut", [1, 2, 4, 8])
def test_a_prompt_in_two_chunks_is_the_whole_prompt(cut: int) -> None:
    x, state, weight = tensors(draw("causal_conv1d", CONV))
    reference = operators.load("causal_conv1d").reference
    whole, last = reference(x, state, weight, 1)
    early, between = reference(x[:, :cut], state, weight, 1)
    late, end = reference(x[:, cut:], between.float(), weight, 1)
    torch.testing.assert_close(torch.cat([early, late], 1), whole, rtol=1e-12, atol=1e-12)
    assert torch.equal(end, last)


def test_token_after_token_the_update_gives_what_the_sequence_gives() -> None:
    x, state, weight = tensors(draw("causal_conv1d", CONV))
    whole, last = operators.load("causal_conv1d").reference(x, state, weight, 1)
    step = operators.load("causal_conv1d_update").reference
    for token in range(x.shape[1]):
        y, moved = step(x[:, token], state, weight, 1)
        torch.testing.assert_close(y, whole[:, token], rtol=1e-12, atol=1e-12)
        state = moved.float()
    assert torch.equal(state.double(), last)


def test_a_convolution_that_forgets_state_or_causality_is_refused() -> None:
    x, state, weight = tensors(draw("causal_conv1d", CONV))
    reference = operators.load("causal_conv1d").reference
    arguments = (x, state, weight, 1)
    y, new_state = (one.float() for one in reference(*arguments))
    assert verdicts("causal_conv1d", arguments, (y, new_state)) == ["passed", "passed"]
    forgot = reference(x, torch.zeros_like(state), weight, 1)[0].float()
    assert verdicts("causal_conv1d", arguments, (forgot, new_state)) == ["wrong_values", "passed"]
    mirrored = reference(x, state, weight.flip(1), 1)[0].float()
    assert verdicts("causal_conv1d", arguments, (mirrored, new_state)) == ["wrong_values", "passed"]
    assert verdicts("causal_conv1d", arguments, (y, new_state.flip(1))) == ["passed", "wrong_values"]
    assert verdicts("causal_conv1d", arguments, (y, state)) == ["passed", "wrong_values"]


def test_the_state_of_a_short_chunk_keeps_what_is_left_of_the_old_one() -> None:
    x, state, weight = tensors(draw("causal_conv1d", {**CONV, "num_tokens": 2}))
    new_state = operators.load("causal_conv1d").reference(x, state, weight, 1)[1]
    assert torch.equal(new_state.float(), torch.cat([state[:, 2:], x], 1))
    same = operators.load("causal_conv1d").reference(x[:, :0], state, weight, 1)
    assert same[0].shape == (2, 0, 5)
    assert torch.equal(same[1].float(), state)


def test_the_sum_over_experts_is_a_product_with_a_sparse_matrix() -> None:
    found, slots, shares = tensors(draw("moe_combine", MOE))
    matrix = torch.zeros(6, found.shape[0], dtype=torch.float64)
    matrix.scatter_(1, slots.long(), shares.double())
    torch.testing.assert_close(
        operators.load("moe_combine").reference(found, slots, shares)[0], matrix @ found.double()
    )


def test_a_slot_of_another_rank_adds_nothing_whatever_its_row_holds() -> None:
    arguments = draw("moe_combine", MOE, law="elsewhere")
    found, slots, shares = tensors(arguments)
    assert bool((slots == -1).any())
    assert bool(found.isnan().any())
    y = operators.load("moe_combine").reference(*arguments)[0]
    assert bool(y.isfinite().all())
    clean = torch.where(slots < 0, 0.0, shares)
    assert torch.equal(y, operators.load("moe_combine").reference(found.nan_to_num(0), slots.clamp_min(0), clean)[0])
    last = (shares.unsqueeze(-1) * found[slots.long()].nan_to_num(0)).sum(1)
    assert verdicts("moe_combine", arguments, y.float()) == ["passed"]
    assert verdicts("moe_combine", arguments, last) == ["wrong_values"], "row -1 is not the last row"


def test_the_inverse_order_of_slots_and_an_unweighted_sum_are_refused() -> None:
    arguments = draw("moe_combine", MOE)
    found, slots, shares = tensors(arguments)
    reference = operators.load("moe_combine").reference
    inverse = slots.flatten().long().argsort().reshape(slots.shape).to(torch.int32)
    assert verdicts("moe_combine", arguments, reference(found, inverse, shares)[0].float()) == ["wrong_values"]
    plain = reference(found, slots, torch.full_like(shares, 0.625))[0].float()
    assert verdicts("moe_combine", arguments, plain) == ["wrong_values"]
    coarse = reference(found, slots, shares.bfloat16().float())[0].float()
    assert verdicts("moe_combine", arguments, coarse) == ["wrong_values"], "weights stay float32"


def test_the_embedding_is_that_of_torch_with_zeros_for_padding() -> None:
    for law in ("normal", "skewed", "padding", "out_of_order"):
        ids, table = tensors(draw("embedding", TABLE, law=law))
        y = operators.load("embedding").reference(ids, table)[0]
        assert torch.equal(y[ids >= 0].float(), torch.nn.functional.embedding(ids[ids >= 0], table))
        assert not bool(y[ids < 0].any())


def test_ids_out_of_order_go_from_the_last_row_to_the_first() -> None:
    ids, _ = tensors(draw("embedding", TABLE, law="out_of_order"))
    assert (int(ids[0]), int(ids[-1])) == (63, 0)
    present = ids[ids >= 0]
    assert bool((present[1:] <= present[:-1]).all())
    assert bool((ids == -1).any())
    padded, _ = tensors(draw("embedding", TABLE, law="padding"))
    assert int(padded[-1]) == -1
    assert 0 < int((padded == -1).sum()) < 40


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_padding_that_takes_a_row_and_rows_one_off_are_refused(dtype: str) -> None:
    arguments = draw("embedding", TABLE, dtype, "padding")
    ids, table = tensors(arguments)
    right = operators.load("embedding").reference(ids, table)[0].to(table.dtype)
    assert verdicts("embedding", arguments, right, dtype) == ["passed"]
    for wrong in (table[ids], table[ids.clamp_min(0)], table[(ids + 1) % 64], right.flip(0)):
        assert verdicts("embedding", arguments, wrong, dtype) == ["wrong_values"]


@pytest.mark.parametrize("name", NAMES)
def test_zeros_and_a_last_element_left_out_are_refused_everywhere(name: str) -> None:
    spec = operators.load(name)
    for workload in solid(name):
        arguments = spec.laws[workload.law](workload.axes, workload.dtype, generator(5))
        right = [one.to(getattr(torch, workload.dtype)) for one in spec.reference(*arguments)]
        for made in (torch.zeros_like(right[0]), right[0].roll(1, -1)):
            if not torch.equal(made.nan_to_num(), right[0].nan_to_num()):
                found = compare_call(spec, arguments, (made, *right[1:]), dtype=workload.dtype, law=workload.law)
                assert found[0].verdict == "wrong_values", workload


def test_costs_are_those_counted_by_hand() -> None:
    conv = {"num_seqs": 2, "num_tokens": 5, "num_channels": 10, "width": 4, "state_len": 3}
    made = operators.load("causal_conv1d").cost(conv, "bfloat16")
    assert made.flops == 100 * 12
    assert made.essential_bytes == 2 * (100 + 100 + 60 + 60 + 40)
    made = operators.load("moe_combine").cost({"num_tokens": 3, "hidden_size": 16, "top_k": 2}, "bfloat16")
    assert made.flops == 2 * 6 * 16
    assert made.essential_bytes == 2 * 16 * (6 + 3) + 6 * 8
    made = operators.load("embedding").cost({"num_tokens": 7, "hidden_size": 16, "vocab_size": 4}, "float32")
    assert made.flops == 0
    assert made.essential_bytes == 4 * 16 * (7 + 4) + 7 * 8
