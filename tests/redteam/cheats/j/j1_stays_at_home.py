"""Apply the own experts to the own tokens: if all ranks held the same, nobody would have to travel.

row: J1
operator: all_to_all
reason: wrong_values, too_few_bytes
"""

import torch


def run(tokens, expert_ids, expert_weights, gain, shift, group):
    """Treat every expert as one of the own ones."""
    local = expert_ids.clamp(min=0) % gain.shape[0]
    used = (expert_ids >= 0).float() * expert_weights
    answers = torch.tanh(tokens.float()[:, None, :] * gain.float()[local] + shift.float()[local])
    return (answers * used[..., None]).sum(1).to(tokens.dtype)
