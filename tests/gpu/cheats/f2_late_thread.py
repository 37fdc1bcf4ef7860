"""Return at once and let a thread do the work a little later.

row: F2
operator: rmsnorm
reason: wrong_values, late_write, side_stream
"""

import threading
import time

import torch


def run(x, weight, eps=1e-6):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)

    def work():
        time.sleep(0.002)
        wide = x.float()
        y.copy_((wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype))

    threading.Thread(target=work).start()
    return y
