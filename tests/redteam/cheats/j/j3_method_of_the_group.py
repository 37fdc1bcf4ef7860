"""Call the library through the group itself.

row: J3
operator: all_reduce
reason: bare_collective
verdict: needs_review
"""


def run(x, group):
    """A scheme without torch.distributed in it."""
    y = x.clone()
    group.allreduce([y]).wait()
    return y
