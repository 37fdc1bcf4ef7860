"""What a worker can see of process-wide state that a candidate must leave alone.

The report comes from the candidate's own process and can be forged; it decides nothing that values do not decide. It
names what an honest look-alike of a cheat must not do.
"""

import builtins
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any


def snapshot() -> dict[str, str]:
    """Return every watched setting and the identity of every watched function, as text."""
    import torch

    flags: dict[str, Callable[[], Any]] = {
        "default_dtype": torch.get_default_dtype,
        "num_threads": torch.get_num_threads,
        "grad_mode": torch.is_grad_enabled,
        "matmul_precision": torch.get_float32_matmul_precision,
        "deterministic": torch.are_deterministic_algorithms_enabled,
        "cpu_rng": lambda: hash(bytes(torch.get_rng_state().numpy())),
        "cwd": os.getcwd,
        "environ": lambda: hash(tuple(sorted(os.environ.items()))),
        "trace": lambda: (sys.gettrace(), sys.getprofile()),
        "signals": lambda: [str(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGALRM, signal.SIGTERM)],
        "flush_denormal": lambda: float(torch.tensor(1e-40) * 1.0) != 0.0,
        "stdout": lambda: (id(sys.stdout), id(sys.stderr)),
        "meta_path": lambda: [type(one).__name__ for one in sys.meta_path],
    }
    for backend in ("cuda.matmul", "cudnn", "mkldnn"):
        module: Any = torch.backends
        for part in backend.split("."):
            module = getattr(module, part)
        for name in ("allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
            if hasattr(module, name):
                flags[f"{backend}.{name}"] = partial(getattr, module, name)
    found = {name: _text(read) for name, read in flags.items()}
    for owner, names in _watched():
        for name in names:
            found[f"patched:{getattr(owner, '__name__', owner)}.{name}"] = str(id(getattr(owner, name, None)))
    return found


def _text(read: Callable[[], Any]) -> str:
    try:
        return str(read())[:200]
    except Exception as error:  # noqa: BLE001 - a setting that cannot be read is a setting too
        return type(error).__name__


def _watched() -> list[tuple[Any, tuple[str, ...]]]:
    import torch

    return [
        (
            torch,
            ("allclose", "equal", "isclose", "empty", "zeros", "frombuffer", "as_strided", "matmul", "compile", "load"),
        ),
        (
            torch.Tensor,
            ("__eq__", "allclose", "equal", "cpu", "contiguous", "view", "detach", "numpy", "copy_", "data_ptr"),
        ),
        (torch.testing, ("assert_close",)),
        (time, ("perf_counter", "perf_counter_ns", "time", "monotonic", "sleep")),
        (builtins, ("open", "__import__", "isinstance", "type", "len", "print", "bytes")),
        (os, ("read", "write", "kill", "_exit")),
    ]


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Name what differs between two snapshots."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
