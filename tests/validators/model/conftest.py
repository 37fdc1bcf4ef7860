"""Small Qwen3-MoE models with random weights: the original, and others that differ from it in one way."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

Change = Callable[[Any], None]


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two layers and eight experts in bfloat16."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("original")
    config = transformers.Qwen3MoeConfig(
        vocab_size=997, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32,
        max_position_embeddings=512, initializer_range=0.08, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(5)
    model = transformers.Qwen3MoeForCausalLM(config).to(torch.bfloat16)
    with torch.no_grad():
        # Random weights alone give nearly uniform answers, in which every fault drowns.
        model.lm_head.weight.mul_(4)
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def changed(original: Path, tmp_path: Path) -> Callable[[Change], Path]:
    """Return a function that writes a copy of the original after a change."""
    from transformers import Qwen3MoeForCausalLM

    def write(change: Change) -> Path:
        model = Qwen3MoeForCausalLM.from_pretrained(original, dtype="auto")
        with torch.no_grad():
            change(model)
        model.save_pretrained(tmp_path / "changed")
        return tmp_path / "changed"

    return write
