"""torch.index_select, padding set to zero."""

import torch


def run(token_ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the rows [num_tokens, hidden_size] of weight [vocab_size, hidden_size]."""
    rows = torch.index_select(weight, 0, token_ids.clamp_min(0))
    return rows.masked_fill_((token_ids < 0).unsqueeze(-1), 0)
