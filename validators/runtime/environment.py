"""What a worker can see of process-wide state that a candidate must leave alone.

The report comes from the candidate's own process and can be forged; it decides nothing that values do not decide. It
names what an honest look-alike of a cheat must not do.
"""

import builtins
import gc
import json
import math
import mmap
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

_COMPILERS = ("TRITON_PTXAS", "TORCHINDUCTOR_", "_TORCHINDUCTOR_")
"""Variables that torch's compiler sets for itself: where its assembler is, an address for its own extensions."""

_PRECISION = (
    "allow_tf32", "fp32_precision", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation", "benchmark", "deterministic", "enabled",
)  # fmt: skip
"""Settings of a backend by which its numbers change."""


def snapshot() -> dict[str, str]:
    """Return every watched setting and the identity of every function of the host, as text."""
    import torch

    flags: dict[str, Callable[[], Any]] = {
        "default_dtype": torch.get_default_dtype,
        "num_threads": torch.get_num_threads,
        "grad_mode": torch.is_grad_enabled,
        "matmul_precision": torch.get_float32_matmul_precision,
        "deterministic": torch.are_deterministic_algorithms_enabled,
        "cpu_rng": lambda: hash(bytes(torch.get_rng_state().numpy())),
        "cwd": os.getcwd,
        "environ": lambda: hash(tuple(sorted(one for one in os.environ.items() if not one[0].startswith(_COMPILERS)))),
        "trace": lambda: (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
        "signals": lambda: [str(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGALRM, signal.SIGTERM)],
        "flush_denormal": lambda: float(torch.tensor(1e-40) * 1.0) != 0.0,
        "stdout": lambda: (id(sys.stdout), id(sys.stderr)),
        "meta_path": lambda: [type(one).__name__ for one in sys.meta_path],
        "path": lambda: hash(tuple(sys.path)),
        "dispatcher": lambda: hash(tuple(sorted(filter(_replaces, torch.library._impls)))),
    }
    for backend in ("fp32", "cuda", "cuda.matmul", "cudnn", "cudnn.conv", "cudnn.rnn", "mkldnn"):
        module: Any = torch.backends
        for part in backend.split(".") if backend != "fp32" else ():
            module = getattr(module, part, None)
        for name in _PRECISION:
            # Not hasattr: a setting that cannot be read before a candidate came may be readable afterwards.
            flags[f"{backend}.{name}"] = partial(getattr, module, name, None)
    found = {name: _text(read) for name, read in flags.items()}
    for owner in _watched():
        space = getattr(owner, "__name__", str(owner))
        found |= {f"patched:{space}.{name}": str(id(value)) for name, value in vars(owner).items() if callable(value)}
    return found | {
        f"replaced:{name}": str(id(one)) for name, one in sys.modules.copy().items() if not name.startswith("kb")
    }


def _replaces(registered: str) -> bool:
    """Tell whether what Python registered with the dispatcher stands in for one of torch's own operators."""
    return registered.startswith("aten/") and registered.endswith(("/CPU", "/CUDA", "Autograd", "plicitAutograd"))


def _text(read: Callable[[], Any]) -> str:
    try:
        return str(read())[:200]
    except Exception as error:  # noqa: BLE001 - a setting that cannot be read is a setting too
        return type(error).__name__


def _watched() -> list[Any]:
    """Return the modules and classes whose functions a harness or another candidate would rely on."""
    import torch

    return [
        torch, torch.Tensor, torch._C.TensorBase, torch.nn.functional, torch.testing, torch.linalg, torch.special,
        torch.cuda, torch.cuda.Event, torch.cuda.Stream, torch.autograd, torch.backends,
        builtins, gc, json, math, mmap, os, os.path, signal, socket, struct, sys, threading, time,
    ]  # fmt: skip


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Name what differs between two snapshots; what is new since then is no change, what is gone is one."""
    return sorted(name for name, value in before.items() if after.get(name) != value)[:200]
