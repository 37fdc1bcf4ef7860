"""Right values at first; a thread puts something else there a little later.

row: F2
operator: rmsnorm
reason: late_write, aliases_input, reused_result
"""

import threading
import time

import torch


def run(x, weight, eps=1e-6):
    wide = x.float()
    y = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)

    def later():
        time.sleep(0.004)
        y.zero_()

    threading.Thread(target=later).start()
    return y
