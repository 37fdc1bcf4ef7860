"""What the judge reads of the machine and the toolchain; never asked of a candidate."""

import hashlib
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

JUDGE_REVISION = 1
"""Raised with a change of this folder that can change what a record means; a class says what goes stale by it."""

REVISIONS = {1: "values"}
"""Revision to class: ``neutral`` (nothing goes stale), ``timing``, ``values`` (everything does)."""

_PACKAGES = ("torch", "triton", "numpy")


def runtime_sha256() -> str:
    """Return the digest of the judge's own files, for audit."""
    return _digest(sorted(Path(__file__).parent.glob("*.py")))


def operator_sha256(name: str) -> str:
    """Return the digest of what an operator means: its spec, the types of specs, and the low-bit formats."""
    folder = Path(__file__).parents[1] / "operators"
    return _digest([folder / "formats.py", folder / f"{name}.py", folder / "spec.py"])


def _digest(files: list[Path]) -> str:
    state = hashlib.sha256()
    for file in files:
        body = file.read_bytes()
        state.update(f"{file.name}\0{len(body)}\0".encode())
        state.update(body)
    return state.hexdigest()


def software() -> dict[str, str]:
    """Return name to version of what the candidate was built with."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def cpu() -> dict[str, Any]:
    """Return the device facts of this machine's processor."""
    return {
        "name": "cpu",
        "arch": "cpu",
        "machine": platform.machine(),
        "model": _cpu_model(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "system": sys.platform,
    }


def _cpu_model() -> str | None:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        return None
    return None
