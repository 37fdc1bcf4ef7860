"""A pool that gets a thread more with each of the first calls, up to four, and keeps them.

operator: rmsnorm
"""

# mypy: ignore-errors

import queue
import threading

import torch

JOBS: queue.SimpleQueue = queue.SimpleQueue()
POOL: list[threading.Thread] = []


def serve() -> None:
    while True:
        job, done = JOBS.get()
        job()
        done.set()


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    if len(POOL) < 4:
        POOL.append(threading.Thread(target=serve, daemon=True))
        POOL[-1].start()
    made = torch.empty(x.shape, dtype=x.dtype)
    wide = x.float()

    def job() -> None:
        made.copy_((wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype))

    done = threading.Event()
    JOBS.put((job, done))
    done.wait()
    return made
