"""A config.json is read strictly, and an architecture that is not known is refused with those that are."""

import json
from typing import Any

import pytest

from kb.errors import EntryFormatError
from kb.targeting.configs import FAMILIES, MAX_BYTES, read, stated_precision

LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32}


def parsed(**fields: Any) -> Any:  # noqa: ANN401 - a config
    return read(json.dumps({**LLAMA, **fields}).encode())


def test_a_composed_config_gives_its_language_model_before_its_vision_tower() -> None:
    outer = {
        "model_type": "qwen3_5_moe",
        "vision_config": {"model_type": "vit", "hidden_size": 1152},
        "text_config": {"model_type": "qwen3_5_moe_text", "hidden_size": 2048},
        "quantization_config": {"quant_algo": "NVFP4"},
    }
    found = read(json.dumps(outer).encode())
    assert (found.model_type, found.family, found.size("hidden_size")) == ("qwen3_5_moe_text", "hybrid", 2048)
    assert stated_precision(found) == "nvfp4"


def test_an_unknown_architecture_is_refused_with_the_known_ones() -> None:
    with pytest.raises(EntryFormatError, match="'mamba3' is not known") as found:
        read(b'{"model_type": "mamba3"}')
    assert found.value.hint is not None
    assert set(FAMILIES) <= set(found.value.hint.removeprefix("known: ").split(", "))
    with pytest.raises(EntryFormatError, match="OddModel"):
        read(b'{"architectures": ["OddModel"]}')


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 100_000, b"{}" + b" " * MAX_BYTES, b'{"model_type": ["llama"]}'],
)
def test_what_is_no_config_is_refused(body: bytes) -> None:
    with pytest.raises(EntryFormatError):
        read(body)


@pytest.mark.parametrize("value", [0, -1, "8", 1.5, True, 1 << 60, [], float("nan")])
def test_a_size_is_a_whole_number_above_zero(value: object) -> None:
    with pytest.raises(EntryFormatError, match="hidden_size"):
        parsed(hidden_size=value).size("hidden_size")


def test_missing_sizes_are_named_and_defaults_used() -> None:
    with pytest.raises(EntryFormatError, match="vocab_size: expected a whole number, found none"):
        parsed().size("vocab_size")
    assert parsed().size("vocab_size", default=3) == 3
    assert parsed(n_group=None).count("n_group") == 0


def test_the_stated_precision_is_understood_or_refused() -> None:
    assert stated_precision(parsed()) == "bfloat16"
    assert stated_precision(parsed(quantization_config={"quant_method": "fp8"})) == "fp8"
    block = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    assert stated_precision(parsed(quantization_config=block)) == "fp8-block"
    with pytest.raises(EntryFormatError, match="quantization_config"):
        stated_precision(parsed(quantization_config={"quant_method": "awq"}))


def test_rotary_dimensions_come_from_either_place_and_are_a_share() -> None:
    assert parsed(partial_rotary_factor=0.5).rotary(128) == 64
    assert parsed(rope_parameters={"partial_rotary_factor": 0.25}).rotary(256) == 64
    with pytest.raises(EntryFormatError):
        parsed(partial_rotary_factor=3).rotary(128)
