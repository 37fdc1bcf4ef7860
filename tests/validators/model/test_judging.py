"""The model oracle on small models with random weights."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kb.validators.model import directory, judging
from kb.validators.runtime.errors import JudgeError
from kb.validators.runtime.report import Report
from tests.validators.model import candidates

ADAPTER = Path(directory.__file__).read_bytes()


def judged(original: Path, source: bytes | str, weights: Path | None = None, precision: str = "bfloat16") -> Report:
    body = source.encode() if isinstance(source, str) else source
    options = judging.Options(precision=precision, lengths=(1, 17, 48, 96), generations=1)
    return judging.judge_model(original, body, weights or original, options=options)


def test_a_generator_that_yields_one_token_for_ever_is_refused_at_its_first_answer(original: Path) -> None:
    found = judged(original, candidates.ENDLESS)
    assert (found.verdict, found.reasons) == ("rejected", ("degenerate_output",))
    assert "1 distinct tokens among 48" in found.details[0]
    assert len(found.cases) == 1


def test_the_original_itself_is_accepted(original: Path) -> None:
    found = judged(original, ADAPTER)
    assert (found.verdict, found.reasons) == ("accepted", ()), found.details
    assert all(case.verdict == "passed" for case in found.cases)


def test_weights_of_eight_bits_are_within_their_budget(original: Path) -> None:
    found = judged(original, candidates.INT8, precision="int8")
    assert (found.verdict, found.reasons) == ("accepted", ()), found.details


def drop_an_expert(model: Any) -> None:  # noqa: ANN401 - a class of transformers
    for layer in model.model.layers:
        layer.mlp.experts.down_proj[3].zero_()


def turn_by_another_base(model: Any) -> None:  # noqa: ANN401 - likewise
    model.config.rope_parameters["rope_theta"] = 1e6


@pytest.mark.parametrize("change", [drop_an_expert, turn_by_another_base])
def test_a_model_with_a_fault_diverges_even_from_a_budget_of_eight_bits(
    original: Path, changed: Callable[[Callable[[Any], None]], Path], change: Callable[[Any], None]
) -> None:
    found = judged(original, ADAPTER, changed(change), precision="int8")
    assert found.verdict == "rejected"
    assert "diverges_from_original" in found.reasons


def test_an_answer_to_another_text_diverges(original: Path) -> None:
    found = judged(original, candidates.CACHED)
    assert "diverges_from_original" in found.reasons


@pytest.mark.parametrize("seed", range(40))
def test_texts_never_come_in_the_order_of_their_lengths(seed: int) -> None:
    lengths = [1, 17, 48]
    asked = [lengths[which] for which in judging._order(lengths, random.Random(seed))]  # noqa: S311 - repeatable
    assert sorted(asked) == lengths
    assert asked not in ([1, 17, 48], [48, 17, 1])


def test_right_distributions_do_not_excuse_tokens_from_elsewhere(original: Path) -> None:
    found = judged(original, candidates.CHEAP_GENERATOR)
    assert found.reasons == ("wrong_tokens",)


def test_a_folder_that_is_no_model_is_an_error_of_the_judge(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(JudgeError, match="original model cannot be used"):
        judged(tmp_path, candidates.ENDLESS)
