"""torch.linalg.solve_triangular and matmul in chunks of 64 tokens, in float32."""

import torch
import torch.nn.functional as f

_CHUNK = 64


def run(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return y [num_seqs, num_tokens, num_v_heads, v_dim] and the state after the last token."""
    tokens, memory = v.shape[1], state.clone()
    if not v.numel():
        return torch.zeros_like(v), memory
    repeats = v.shape[2] // k.shape[2]
    queries, keys = (_chunks(one.repeat_interleave(repeats, 2)) for one in (q, k))
    values, gate, strength = _chunks(v), _chunks(g.unsqueeze(-1)).squeeze(-1).cumsum(-1), _chunks(beta.unsqueeze(-1))
    # What token t still sees of token s <= t: exp(g_{s+1} + ... + g_t).
    fade = (gate.unsqueeze(-1) - gate.unsqueeze(-2)).tril().exp().tril()
    system = (strength * fade * (keys @ keys.transpose(-1, -2))).tril(-1)
    right = torch.cat([strength * values, strength * gate.exp().unsqueeze(-1) * keys], -1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    update, seen = solved.split([values.shape[-1], keys.shape[-1]], -1)
    inside = fade * (queries @ keys.transpose(-1, -2))
    made = []
    for at in range(keys.shape[2]):
        u = update[:, :, at] - seen[:, :, at] @ memory
        made.append(gate[:, :, at].exp().unsqueeze(-1) * (queries[:, :, at] @ memory) + inside[:, :, at] @ u)
        left = fade[:, :, at, -1].unsqueeze(-1) * keys[:, :, at]
        memory = memory * gate[:, :, at, -1].exp()[..., None, None] + left.transpose(-1, -2) @ u
    y = scale * torch.cat(made, 2)[:, :, :tokens]
    return y.transpose(1, 2).to(v.dtype).contiguous(), memory


def _chunks(x: torch.Tensor) -> torch.Tensor:
    """Return float32 [num_seqs, heads, chunks, 64, dim] of x [num_seqs, num_tokens, heads, dim], zeros at the end."""
    padded = f.pad(x.float(), (0, 0, 0, 0, 0, -x.shape[1] % _CHUNK))
    return padded.transpose(1, 2).unflatten(2, (-1, _CHUNK))
