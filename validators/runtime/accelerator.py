"""A GPU as the judge sees it: which one, what its worker's environment is, and what the driver says of it.

The judge's own process opens no context: what it wants to know is asked in a process of its own.
"""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from kb.validators.runtime.driver import Driver, DriverError

CPU = "cpu"


def index_of(device: str) -> int:
    """Return the number of a GPU, as the user counts the visible ones.

    Args:
        device: ``cuda`` or ``cuda:N``.

    Raises:
        ValueError: The name has another form.
    """
    kind, _, number = device.partition(":")
    if kind != "cuda" or not (number or "0").isdigit():
        raise ValueError(f"expected cpu or cuda:N, got {device!r}")
    return int(number or 0)


def visible(device: str) -> str:
    """Return what ``CUDA_VISIBLE_DEVICES`` has to be for a process that may see this GPU alone."""
    index = index_of(device)
    chosen = [one.strip() for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one.strip()]
    return chosen[index] if index < len(chosen) else str(index)


def environment(device: str, cache: str) -> dict[str, str]:
    """Return the environment variables of a worker that depend on its device.

    Args:
        device: ``cpu`` or ``cuda:N``.
        cache: The worker's one writable folder.
    """
    if device == CPU:
        return {"TRITON_INTERPRET": "1"}
    kept = {name: os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ}
    return kept | {
        "CUDA_VISIBLE_DEVICES": visible(device), "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_CACHE_PATH": cache,
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor", "TORCH_EXTENSIONS_DIR": f"{cache}/extensions",
        # Compilers run in the worker's own process tree, one after the other, and none stays behind.
        "TORCHINDUCTOR_COMPILE_THREADS": "1", "MAX_JOBS": "2", "USER": "kb", "LOGNAME": "kb",
    }  # fmt: skip


def trusted_environment(device: str) -> dict[str, str]:
    """Return the environment of a trusted process that may use this GPU and sees no other."""
    if device == CPU:
        return dict(os.environ)
    return {**os.environ, "CUDA_VISIBLE_DEVICES": visible(device), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def facts(device: str) -> dict[str, Any]:
    """Ask the driver about a GPU, in a process of its own.

    Args:
        device: ``cuda:N``.

    Returns:
        name, uuid, capability, arch, memory_bytes, sms, l2_bytes and driver versions.

    Raises:
        DriverError: There is no driver or no such GPU.
    """
    home = str(Path(str(sys.modules["kb"].__file__)).resolve().parents[1])
    code = f"import sys; sys.path.insert(0, {home!r}); from {__name__} import main; main()"
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-I", "-B", "-c", code],
            env=trusted_environment(device),
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise DriverError("the driver did not answer") from error
    if done.returncode != 0:
        raise DriverError(done.stderr.strip().splitlines()[-1][:300] if done.stderr.strip() else "no CUDA device")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print the facts of the first visible GPU as JSON."""
    try:
        found = Driver().facts(0) | {"driver": driver_version()}
    except DriverError as error:
        raise SystemExit(str(error)) from error
    print(json.dumps(found))  # noqa: T201 - read by ``facts``


def driver_version() -> str | None:
    """Return the version of the kernel's driver, as NVML tells it; None without NVML."""
    text = ctypes.create_string_buffer(96)
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        if library.nvmlInit_v2() != 0 or library.nvmlSystemGetDriverVersion(text, 96) != 0:
            return None
    except (OSError, AttributeError):
        return None
    return text.value.decode("ascii", "replace")
