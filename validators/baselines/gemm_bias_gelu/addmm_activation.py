"""torch._addmm_activation: the epilogue of cuBLASLt."""

import torch

NEEDS = "cuda"
ONLY = "law == 'tanh_form'"


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, tanh: int = 0) -> torch.Tensor:
    """Return gelu(x @ weight.T + bias), x [num_tokens, in_features]; the epilogue has the tanh form only."""
    if not tanh:
        raise ValueError("the library's epilogue has the tanh form only")
    return torch._addmm_activation(bias, x, weight.T, use_gelu=True)
