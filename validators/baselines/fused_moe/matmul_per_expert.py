"""torch.matmul for one expert after the other, silu and mul between."""

import torch
import torch.nn.functional as f

CAPTURE = False


def _grouped(x: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    parts = torch.split(x, offsets.diff().tolist())
    return torch.cat([part @ weight[expert].T for expert, part in enumerate(parts)])


def run(
    x: torch.Tensor,
    gate_up_weight: torch.Tensor,
    down_weight: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
) -> torch.Tensor:
    """Return the weighted sum of the chosen experts' SwiGLU blocks, x [num_tokens, hidden_size]."""
    if not x.numel():
        return torch.zeros_like(x)
    chosen = topk_ids.flatten()
    order = torch.argsort(chosen, stable=True)
    counts = torch.zeros(gate_up_weight.shape[0] + 1, dtype=torch.int32, device=x.device)
    counts.scatter_add_(0, chosen.long() + 1, torch.ones_like(chosen))
    offsets = counts.cumsum(0, dtype=torch.int32)
    gate, up = _grouped(x[order // topk_ids.shape[1]], gate_up_weight, offsets).float().chunk(2, -1)
    y = _grouped((f.silu(gate) * up).to(x.dtype), down_weight, offsets)
    back = torch.empty_like(order)
    back[order] = torch.arange(order.numel(), device=x.device)
    rows = y[back].float().unflatten(0, (x.shape[0], topk_ids.shape[1]))
    return (rows * topk_weights.unsqueeze(-1)).sum(1).to(x.dtype)
