"""What the judge reads of the machine and the toolchain; never asked of a candidate."""

import hashlib
import os
import platform
import re
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from kb.validators.runtime import accelerator

JUDGE_REVISION = 9
"""Raised with a change of this folder that can change what a record means; a class says what goes stale by it."""

REVISIONS = {
    1: "values", 2: "values", 3: "timing", 4: "neutral", 5: "timing", 6: "values", 7: "neutral", 8: "neutral",
    9: "neutral",
}  # fmt: skip
"""Revision to class: ``neutral`` (nothing goes stale), ``timing``, ``values`` (everything does)."""

MODEL = "causal_lm"
"""What a record calls the operator of a whole model."""

_IMPORT = re.compile(r"^from kb\.validators\.operators(?:\.(\w+))? import (\([^)]*\)|[^\n]*)", re.MULTILINE)

_PACKAGES = ("torch", "triton", "numpy")


def runtime_sha256() -> str:
    """Return the digest of the judge's own files, for audit and for the pin of its revision."""
    return digest_of(Path(__file__).parent, Path(__file__).parent.rglob("*.py"))


def operator_sha256(name: str) -> str:
    """Return the digest of what an operator means: its spec and all files of the folder that it is built from.

    A whole model has no spec: what it is held against is the oracle's own code.
    """
    folder = Path(__file__).parents[1] / "operators"
    if name == MODEL:
        return digest_of(folder.with_name("model"), folder.with_name("model").glob("*.py"))
    found: set[str] = set()
    todo = {name, "spec", "formats"}
    while todo:
        one = todo.pop()
        found.add(one)
        todo |= _needed(folder / f"{one}.py") - found
    return digest_of(folder, (folder / f"{one}.py" for one in found))


def _needed(file: Path) -> set[str]:
    """Name the files of the same folder that a file imports."""
    needed = set()
    for module, names in _IMPORT.findall(file.read_text(encoding="utf-8")):
        needed |= {module} if module else set(re.findall(r"(\w+)(?:\s+as\s+\w+)?\s*(?:,|$)", names.strip("()\n ")))
    return {one for one in needed if (file.parent / f"{one}.py").is_file()}


def digest_of(folder: Path, files: Iterable[Path]) -> str:
    """Return one digest of some files, their names below ``folder`` included."""
    state = hashlib.sha256()
    for name, file in sorted((one.relative_to(folder).as_posix(), one) for one in files):
        body = file.read_bytes()
        state.update(f"{name}\0{len(body)}\0".encode())
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


def cuda(device: str) -> dict[str, Any]:
    """Return the device facts of a GPU, as its driver tells them to a process of the judge's own.

    Args:
        device: ``cuda:N``.

    Returns:
        name, uuid, capability, arch, sms, l2_bytes, memory_bytes, driver and the CUDA version that it brings.

    Raises:
        DriverError: There is no such GPU, or no driver.
        ValueError: The name has another form.
    """
    found = accelerator.facts(device)
    return found | {"arch": "sm_" + str(found["capability"]).replace(".", "")}


def _cpu_model() -> str | None:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        return None
    return None
