"""torch.softmax and a stable torch.sort."""

import torch

COMPILES = True


def run(logits: torch.Tensor, top_k: int, renormalize: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights float32 and expert ids int32, both [num_tokens, top_k], best first, ties by lower id."""
    ids = torch.sort(logits, dim=-1, descending=True, stable=True).indices[:, :top_k]
    if renormalize:
        return torch.softmax(logits.gather(-1, ids).float(), -1), ids.int()
    return torch.softmax(logits.float(), -1).gather(-1, ids), ids.int()
