"""torch indexing and a weighted sum in float32."""

import torch

COMPILES = True


def run(expert_out: torch.Tensor, slot_to_row: torch.Tensor, topk_weights: torch.Tensor) -> torch.Tensor:
    """Return the weighted sum [num_tokens, hidden_size] of the rows that each token's slots name."""
    if slot_to_row.numel() == 0:
        return expert_out.new_zeros(slot_to_row.shape[0], expert_out.shape[1])
    found = expert_out[slot_to_row.clamp_min(0)].float()
    found = torch.where((slot_to_row >= 0).unsqueeze(-1), found, 0.0)
    return (found * topk_weights.unsqueeze(-1)).sum(1).to(expert_out.dtype)
