"""Start a program in a judged call, when no compiler has anything to do any more.

row: H1
operator: rmsnorm
reason: late_build, forbidden_call
verdict: needs_review
"""

import contextlib
import subprocess

import torch

_CALLS = [0]


def run(x, weight, eps=1e-6):
    _CALLS[0] += 1
    if _CALLS[0] > 40:
        with contextlib.suppress(OSError):
            subprocess.run(["gcc", "--version"], capture_output=True, check=False)
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)
