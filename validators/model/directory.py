"""A model directory as a candidate: loaded by transformers, from safetensors, without code of its own.

This file runs inside the sandbox as any other candidate does; it is also the shortest example of the contract.
"""

from typing import Any

import torch


class Model:
    """A causal language model."""

    def __init__(self, folder: str, dtype: torch.dtype | str = "auto") -> None:
        from transformers import AutoModelForCausalLM

        self.model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True, trust_remote_code=False, use_safetensors=True
        ).eval()  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """int64 [length] to float32 [length, vocabulary]: what follows each token, all tokens given."""
        made: torch.Tensor = self.model(tokens[None], use_cache=False).logits[0].float()
        return made

    @torch.no_grad()
    def generate(self, tokens: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
        """int64 [length] and float64 [new] to int64 [new]: each the first whose cumulative probability exceeds u."""
        made: list[int] = []
        step, cache = tokens[None], None
        for u in uniforms.tolist():
            out = self.model(step, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            cumulative = torch.softmax(out.logits[0, -1].double(), -1).cumsum(-1)
            made.append(min(int((cumulative <= u).sum()), cumulative.numel() - 1))
            step = torch.tensor([[made[-1]]])
        return torch.tensor(made)


def load(folder: str) -> Model:
    """Return the model in a folder."""
    return Model(folder)
