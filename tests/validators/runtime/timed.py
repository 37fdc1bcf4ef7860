"""Candidates for the tests of timing, as source text: honest ones, and ways to look faster."""

HONEST = """
import torch

def run(x, weight, eps=1e-6):
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, eps)
"""

ATTENTION = """
import torch

def run(q, k, v, scale, causal):
    given = (one.transpose(1, 2) for one in (q, k, v))
    made = torch.nn.functional.scaled_dot_product_attention(*given, scale=scale, is_causal=bool(causal))
    return made.transpose(1, 2).contiguous()
"""

SLEEPY = HONEST.replace("import torch", "import time\nimport torch\n\nsleep = time.sleep").replace(
    "    return", "    sleep(0.02)\n    return"
)
"""Honest work that takes at least 20 ms."""

FORGER = (
    SLEEPY
    + """
import gc

def forge():
    for one in gc.get_objects():
        if type(one).__name__ == "HostBackend":
            type(one).elapsed_us = lambda self: 1.0

forge()
"""
)

LATE = """
import threading
import time
import torch

def work(x, weight, eps, y):
    time.sleep(0.2)
    y.copy_(torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, eps))

def run(x, weight, eps=1e-6):
    y = torch.empty_like(x)
    threading.Thread(target=work, args=(x, weight, eps, y), daemon=True).start()
    return y
"""

HELD_BACK = (
    LATE
    + """
import gc

waiting = []

def work(x, weight, eps, y):
    time.sleep(0.2)
    y.copy_(torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, eps))
    waiting.pop()

def wait(original):
    def handed(session, message):
        while waiting:
            time.sleep(0.001)
        return original(session, message)
    return handed

def run(x, weight, eps=1e-6):
    y = torch.empty_like(x)
    waiting.append(0)
    threading.Thread(target=work, args=(x, weight, eps, y), daemon=True).start()
    return y

for one in gc.get_objects():
    if isinstance(one, dict) and "outputs_of" in one and "batch" in one:
        one["outputs_of"] = wait(one["outputs_of"])
"""
)

LAZY = """
import torch

inputs = {}

class Later(torch.Tensor):
    def contiguous(self):
        x, weight = inputs[self.data_ptr()]
        return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, 1e-6)

def run(x, weight, eps=1e-6):
    y = torch.empty_like(x)
    inputs[y.data_ptr()] = (x, weight)
    return y.as_subclass(Later)
"""

SKIPPER = """
import torch

seen, ready = {}, {}

def run(x, weight, eps=1e-6):
    seen[id(x)] = (x, weight)
    if id(x) not in ready:
        for key, (a, w) in seen.items():
            ready[key] = torch.nn.functional.rms_norm(a, (a.shape[-1],), w, eps)
    return ready.pop(id(x))
"""

MEMO = """
import torch

known = {}

def run(x, weight, eps=1e-6):
    key = KEY
    if key not in known:
        known[key] = torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, eps)
    return known[key].clone()
"""

AHEAD = """
import threading
import time
import torch

sleep = time.sleep
jobs, done = {}, {}

def rms(x, weight):
    sleep(0.01)
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, 1e-6)

def ahead():
    while True:
        for x, weight in list(jobs.values()):
            key = bytes(x.numpy())
            if key not in done:
                done[key] = rms(x, weight)
        sleep(0.0001)

threading.Thread(target=ahead, daemon=True).start()

def run(x, weight, eps=1e-6):
    jobs[id(x)] = (x, weight)
    key = bytes(x.numpy())
    while key not in done:
        sleep(0.0001)
    return done[key]
"""

SPINNER = (
    HONEST
    + """
import threading

def spin():
    while True:
        pass

threading.Thread(target=spin, daemon=True).start()
torch.set_num_threads(1)
"""
)

PACKED = """
import torch
from concurrent.futures import ThreadPoolExecutor

pool = ThreadPoolExecutor(2)
packed = {}

def run(x, weight, eps=1e-6):
    if weight.data_ptr() not in packed:
        packed[weight.data_ptr()] = weight.double()
    wide = pool.submit(x.double).result()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * packed[weight.data_ptr()]).to(x.dtype)
"""
