"""Operator rows of the families: shapes and calls against those of the models' own descriptions."""

import json
from typing import Any

import pytest

from kb.errors import ConfigError, DeviceUnavailableError, EntryFormatError
from kb.models import vocabulary
from kb.models.documents import Target, TargetOperator
from kb.targeting.configs import read
from kb.targeting.making import Deployment, target_of
from kb.validators.operators import load, names

QWEN35 = {
    "model_type": "qwen3_5_moe_text", "vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40,
    "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts_per_tok": 8, "num_experts": 256,
    "rope_parameters": {"partial_rotary_factor": 0.25},
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 10,
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "num_hidden_layers": 32,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
}  # fmt: skip
QWEN3 = {**LLAMA, "model_type": "qwen3", "head_dim": 128}
QWEN3_MOE = {
    **QWEN3, "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "moe_intermediate_size": 768,
    "num_experts": 128, "num_experts_per_tok": 8,
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128, "kv_lora_rank": 512,
    "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "n_group": 8,
    "topk_group": 4, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
}  # fmt: skip
VIT = {
    "model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "image_size": 224, "patch_size": 16, "hidden_act": "gelu",
}  # fmt: skip
SAM = {
    **VIT, "model_type": "sam3_vit_model", "hidden_size": 1024, "num_hidden_layers": 32, "num_attention_heads": 16,
    "intermediate_size": 4736, "image_size": 1008, "patch_size": 14, "window_size": 24,
    "global_attn_indexes": [7, 15, 23, 31],
}  # fmt: skip
EVERY = [LLAMA, QWEN3, QWEN3_MOE, QWEN35, DEEPSEEK, VIT, SAM]


def made(config: dict[str, Any], **asked: Any) -> Target:  # noqa: ANN401 - fields of a deployment
    """Return the target of a config."""
    deployment = Deployment(**{"device": "B200", **asked})
    return target_of(read(json.dumps(config).encode()), deployment, model="M")


def rows(target: Target) -> dict[str, TargetOperator]:
    """Return rows by name."""
    assert len({row.name for row in target.operators}) == len(target.operators)
    return {row.name: row for row in target.operators}


@pytest.mark.parametrize("config", EVERY, ids=lambda config: str(config["model_type"]))
@pytest.mark.parametrize("precision", ["bfloat16", "fp8", "fp8-block", "nvfp4"])
def test_every_row_names_an_operator_and_its_axes(config: dict[str, Any], precision: str) -> None:
    for row in made(config, precision=precision).operators:
        if row.operator in vocabulary.UNJUDGED_OPERATORS:
            continue
        assert row.operator in names.NAMES
        assert {*row.axes, *row.per_token, *row.per_sequence} <= set(load(row.operator).axes)


def test_a_dense_model_has_its_published_shapes() -> None:
    found = rows(made(LLAMA, precision="fp8"))
    assert (found["attention qkv"].operator, found["attention qkv"].axes) == ("gemm_fp8", {"n": 6144, "k": 4096})
    assert found["MLP gate and up"].axes == {"n": 28672, "k": 4096}
    assert found["MLP down"].calls_per_step == 32
    assert found["attention, decode"].axes == {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
    assert found["output head"].operator == "gemm"
    assert "RMSNorm" not in str(found["RoPE and KV append"].note)
    assert "RMSNorm" in str(rows(made(QWEN3))["RoPE and KV append"].note)


def test_the_hybrid_has_the_shapes_of_the_shipped_target() -> None:
    found = rows(made(QWEN35, precision="nvfp4"))
    assert found["GDN in-projection qkv and z"].axes == {"n": 12288, "k": 2048}
    assert found["GDN recurrent decode"].axes == {
        "num_heads": 16, "num_v_heads": 32, "head_dim": 128, "head_dim_v": 128,
    }  # fmt: skip
    assert (found["GDN recurrent decode"].calls_per_step, found["attention, decode"].calls_per_step) == (30, 10)
    assert found["attention qkv"].axes["n"] == 9216
    assert found["RoPE and KV append"].axes["rotary_dim"] == 64
    experts = found["experts gate and up"]
    assert (experts.operator, experts.axes["n"], experts.per_token) == (
        "moe_grouped_gemm_nvfp4", 1024, {"num_tokens_expanded": 8},
    )  # fmt: skip
    assert (found["router logits"].operator, found["GDN in-projection b and a"].operator) == ("gemm", "gemm")


def test_latent_attention_is_no_operator_that_the_judge_has() -> None:
    found = rows(made(DEEPSEEK, precision="fp8-block"))
    assert found["latents of q and kv"].axes == {"n": 1536 + 576, "k": 7168}
    assert found["latent attention, decode"].operator == "mla_decode"
    assert found["query into the latent"].axes == {"batch": 128, "n": 512, "k": 128}
    assert (found["experts down"].calls_per_step, found["MLP down"].calls_per_step) == (58, 3)
    assert found["top-k of the best groups"].operator == "group_router"


def test_an_encoder_with_windows_has_those_of_the_shipped_target() -> None:
    found = rows(made(SAM, device="H100"))
    window = found["window attention"]
    assert (window.axes["window_tokens"], window.per_token["num_windows"], window.calls_per_step) == (576, 9, 28)
    assert (found["attention"].axes["q_len"], found["attention"].calls_per_step) == (5184, 4)
    assert found["MLP up"].axes == {"in_features": 1024, "out_features": 4736}
    assert rows(made(VIT))["attention"].axes["q_len"] == 197


def test_division_over_devices_divides_and_adds_the_sums() -> None:
    found = rows(made(LLAMA, count=4))
    assert found["attention qkv"].axes["n"] == 6144 // 4
    assert (found["sums over devices"].operator, found["sums over devices"].calls_per_step) == ("all_reduce", 64)
    assert rows(made(LLAMA, count=16))["attention, decode"].axes["num_kv_heads"] == 1
    with pytest.raises(ConfigError, match="query heads: 32 cannot be divided over 3"):
        made(LLAMA, count=3)


def test_phases_can_be_chosen_and_must_be_those_of_the_model() -> None:
    decode = made(LLAMA, phases=("decode",), batch_size=8)
    assert [one.name for one in decode.traffic] == ["decode"]
    assert all(row.phase in (None, "decode") for row in decode.operators)
    with pytest.raises(ConfigError, match="'vision': expected prefill or decode"):
        made(LLAMA, phases=("vision",))


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"num_key_value_heads": 5}, EntryFormatError),
        ({"num_attention_heads": None}, EntryFormatError),
        ({"layer_types": ["full_attention"]}, EntryFormatError),
        ({"num_experts_per_tok": 1000}, ConfigError),
    ],
)
def test_sizes_that_do_not_fit_together_are_refused(changed: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        made({**QWEN35, **changed})


def test_a_patch_larger_than_the_image_and_layers_that_are_not_there_are_refused() -> None:
    with pytest.raises(EntryFormatError, match="patch"):
        made({**VIT, "patch_size": 500})
    with pytest.raises(EntryFormatError, match="global_attn_indexes"):
        made({**SAM, "global_attn_indexes": [99]})


def test_unknown_words_are_refused() -> None:
    with pytest.raises(DeviceUnavailableError):
        made(LLAMA, device="H9000")
    with pytest.raises(ConfigError, match="precision 'fp3'"):
        made(LLAMA, precision="fp3")
