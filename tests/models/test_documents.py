"""Targets say traffic in numbers, their shares add up, and what they refer to is there."""

from typing import Any

import pytest
from pydantic import ValidationError

from kb.models.documents import Target, TargetOperator, Traffic


def row(**changed: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of several types
    """Return a row of a target."""
    return {"operator": "gemm", "name": "a product", "axes": {"n": 8, "k": 4}, "dtypes": ["bfloat16"], **changed}


def target(**changed: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of several types
    """Return a target with two traffic patterns."""
    return {
        "model": "M",
        "devices": ["H200"],
        "device_count": 1,
        "precision": "bfloat16",
        "traffic": [
            {"name": "decode", "phase": "decode", "batch_size": 4, "context_len": 100},
            {"name": "prefill", "phase": "prefill", "batch_size": 2, "input_tokens": 50, "weight": 3.0},
        ],
        "accuracy": "none lost",
        "goals": [{"metric": "ttft_ms", "better": "lower", "traffic": "prefill"}],
        **changed,
    }


def faults(facts: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as found:
        Target.model_validate(facts)
    return str(found.value)


def test_axes_follow_the_traffic_and_what_is_fixed_stays() -> None:
    made = Target.model_validate(target(operators=[row()]))
    decode, prefill = made.traffic
    product = made.operators[0]
    assert product.axes_under(decode, ("m", "n", "k")) == {"m": 4, "n": 8, "k": 4}
    assert product.axes_under(prefill, ("m", "n", "k")) == {"m": 100, "n": 8, "k": 4}
    head = TargetOperator.model_validate(row(per_sequence={"m": 1}))
    assert head.axes_under(prefill, ("m", "n", "k"))["m"] == 2
    experts = TargetOperator.model_validate(row(per_token={"num_tokens_expanded": 8}))
    assert experts.axes_under(prefill, ("num_tokens_expanded",)) == {"num_tokens_expanded": 800}
    fixed = TargetOperator.model_validate(row(axes={"m": 7}))
    assert fixed.axes_under(prefill, ("m",)) == {"m": 7}


def test_pages_of_a_cache_follow_from_lengths_and_unknown_axes_are_left_out() -> None:
    decode = Traffic(name="decode", phase="decode", batch_size=4, context_len=100)
    attention = TargetOperator.model_validate(row(operator="paged_attention_decode", axes={"num_heads": 2}))
    wanted = ("num_seqs", "num_heads", "page_size", "max_pages", "num_pages", "context_len", "head_dim")
    assert attention.axes_under(decode, wanted) == {
        "num_seqs": 4, "num_heads": 2, "page_size": 16, "max_pages": 7, "num_pages": 28, "context_len": 100,
    }  # fmt: skip
    assert attention.axes_under(Traffic(name="x"), ("context_len", "q_len")) == {}


def test_a_row_runs_under_its_phase_or_under_the_traffic_that_it_names() -> None:
    decode, prefill = Traffic(name="d", phase="decode"), Traffic(name="p", phase="prefill")
    assert TargetOperator.model_validate(row()).runs_under(decode)
    assert not TargetOperator.model_validate(row(phase="decode")).runs_under(prefill)
    named = TargetOperator.model_validate(row(phase="decode", traffic=["p"]))
    assert named.runs_under(prefill)
    assert not named.runs_under(decode)


def test_shares_are_their_weighted_mean_and_add_up_to_one_at_most() -> None:
    shared = row(share=0.35, share_from="estimated", shares={"decode": 0.5, "prefill": 0.3})
    Target.model_validate(target(operators=[shared]))
    wrong = {**shared, "share": 0.5}
    assert "is not the mean" in faults(target(operators=[wrong]))
    much = row(share=0.6, share_from="measured")
    assert "add up to 1.200" in faults(target(operators=[much, much]))
    rest = [{"name": "mystery", "share": 0.5}]
    assert "add up to 1.100" in faults(target(operators=[much], unnamed=rest))
    assert "under decode" in faults(
        target(operators=[row(share=0.15, share_from="measured", shares={"decode": 0.6})] * 2)
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"operators": [row(share=0.1)]}, "belong together"),
        ({"operators": [row(shares={"decode": 0.1})]}, "shares need share"),
        ({"operators": [row(traffic=["night"])]}, "found 'night'"),
        ({"operators": [row(per_token={"n": 2})]}, "more than one"),
        ({"operators": [row(axes={"n": -1})]}, "2^50"),
        ({"operators": [row(operator="Gemm!")]}, "operator"),
        ({"goals": [{"metric": "x", "better": "lower", "traffic": "night"}]}, "goal x"),
        ({"traffic": [{"name": "a"}, {"name": "a"}]}, "same name"),
        ({"traffic": []}, "traffic"),
        ({"traffic": "much"}, "traffic"),
        ({"storage": {"weights": "fp4"}}, "storage.weights"),
        ({"parallelism": {"sideways": 2}}, "parallelism"),
        ({"unnamed": [{"name": "k", "share": 0.0}]}, "share"),
    ],
)
def test_a_target_that_does_not_hold_together_is_refused(changed: dict[str, Any], said: str) -> None:
    assert said in faults(target(**changed))


def test_traffic_in_words_alone_as_older_targets_have_it_can_still_be_read() -> None:
    made = Target.model_validate(target(traffic=["single stream"], goals=[{"metric": "x", "better": "lower"}]))
    assert (made.traffic[0].summary, made.traffic[0].phase) == ("single stream", None)
