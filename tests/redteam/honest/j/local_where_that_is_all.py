"""Answer tokens whose experts are all at home without sending them anywhere.

operator: all_to_all
"""

import torch
import torch.distributed as dist


def run(tokens, expert_ids, expert_weights, gain, shift, group):
    """Send every other rank the tokens that it has experts for, one message of each kind."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    each = gain.shape[0]
    owner = torch.where(expert_ids >= 0, expert_ids // each, -1)
    rows = [torch.nonzero((owner == peer).any(1)).view(-1) for peer in range(world)]
    counts = swap([torch.tensor([len(one)]) for one in rows], [1] * world, (), torch.int64, rank, world, group)
    sizes = [int(one) for one in counts]
    top_k, hidden = expert_ids.shape[1], tokens.shape[1]
    got = swap([tokens[one] for one in rows], sizes, (hidden,), tokens.dtype, rank, world, group)
    ids = swap([expert_ids[one] for one in rows], sizes, (top_k,), torch.int64, rank, world, group)
    weights = swap([expert_weights[one] for one in rows], sizes, (top_k,), torch.float32, rank, world, group)
    answers = []
    for part, chosen, share in zip(got, ids, weights):
        total = torch.zeros(part.shape, dtype=torch.float32)
        for index in range(each):
            factor = (share * (chosen == rank * each + index)).sum(1, keepdim=True)
            total += factor * torch.tanh(part.float() * gain[index].float() + shift[index].float())
        answers.append(total.to(tokens.dtype))
    back = swap(answers, [len(one) for one in rows], (hidden,), tokens.dtype, rank, world, group)
    y = torch.zeros(tokens.shape, dtype=torch.float32)
    for place, part in zip(rows, back):
        y[place] += part.float()
    return y.to(tokens.dtype)


def swap(out, sizes, shape, dtype, rank, world, group):
    """Send part p to rank p; parts that stay at home are not sent."""
    got = [
        out[one].contiguous() if one == rank else torch.empty(sizes[one], *shape, dtype=dtype) for one in range(world)
    ]
    works = []
    for step in range(1, world):
        to, source = (rank + step) % world, (rank - step) % world
        if out[to].numel():
            works.append(dist.isend(out[to].contiguous(), group=group, group_dst=to))
        if got[source].numel():
            works.append(dist.irecv(got[source], group=group, group_src=source))
    for work in works:
        work.wait()
    return got
