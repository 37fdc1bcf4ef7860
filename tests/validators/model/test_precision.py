"""Weight formats emulated in the original."""

import pytest
import torch

from kb.validators.model.precision import PRECISIONS, rounded


@pytest.fixture
def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.ModuleDict({"embed": torch.nn.Embedding(5, 32), "proj": torch.nn.Linear(32, 48)})


@pytest.mark.parametrize(("precision", "least", "most"), [
    ("bfloat16", 0.0, 0.0), ("int8", 1e-3, 1e-2), ("float8_e4m3fn", 1e-2, 5e-2), ("int4", 3e-2, 0.2),
    ("nvfp4", 5e-2, 0.2),
])  # fmt: skip
def test_a_format_costs_what_its_bits_say(model: torch.nn.Module, precision: str, least: float, most: float) -> None:
    before = model["proj"].weight.detach().clone()  # type: ignore[index]
    with rounded(model, precision):
        error = float((model["proj"].weight.detach() - before).norm() / before.norm())  # type: ignore[index]
    assert least <= error <= most


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rounding_is_taken_back_and_spares_embeddings_and_biases(model: torch.nn.Module, precision: str) -> None:
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    with rounded(model, precision):
        assert torch.equal(model["embed"].weight, before["embed.weight"])  # type: ignore[index]
        assert torch.equal(model["proj"].bias, before["proj.bias"])  # type: ignore[index]
    assert all(torch.equal(one, before[name]) for name, one in model.named_parameters())
