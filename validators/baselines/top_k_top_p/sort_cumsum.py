"""torch.sort, softmax and cumsum."""

import torch

COMPILES = True


def run(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Return the renormalised probabilities [num_rows, vocab_size], float32, zero outside of the kept set."""
    vocab = logits.shape[1]
    ordered = torch.sort(logits.float(), -1, descending=True).values
    count = torch.where((top_k <= 0) | (top_k > vocab), vocab, top_k).long()
    least = ordered.gather(-1, count.unsqueeze(-1) - 1)
    chance = torch.softmax(ordered.masked_fill(ordered < least, -torch.inf), -1).double()
    # A token is kept if what is before it adds up to less than p, or if it equals one that is.
    reached = (chance.cumsum(-1) - chance < top_p.unsqueeze(-1)) | (top_p.unsqueeze(-1) >= 1)
    last = ordered.gather(-1, (reached & (ordered >= least)).sum(-1, keepdim=True) - 1)
    wide = logits.float()
    return torch.softmax(wide.masked_fill(wide < torch.maximum(least, last), -torch.inf), -1)
