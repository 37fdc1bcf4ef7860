"""What a change of versions makes stale: a small table, and versions cut down to the digits that count. Pure.

A version is kept only as far as a change of it can matter: ``3.11.9`` of Python becomes ``3.11``, so a patch release
makes nothing stale; ``580.159.04`` of the driver becomes ``580.159``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ANY = frozenset({"*"})
"""All languages."""

_GPU_JIT = frozenset({"triton", "gluon", "helion"})
"""Languages that Triton compiles."""
_NVCC = frozenset({"cuda", "cpp", "cutlass", "cute_dsl", "cutile"})
"""Languages that NVIDIA's own compiler turns into code."""
_FRAMEWORK = frozenset({"torch", "python"})
"""Languages whose work the framework's own kernels do."""


@dataclass(frozen=True)
class Matters:
    """What a change of one component makes stale."""

    digits: int
    """How many leading parts of its version count."""
    values: frozenset[str] = frozenset()
    """Languages whose values, and with them whose times, go stale."""
    timing: frozenset[str] = frozenset()
    """Languages of which the times alone go stale."""
    baseline: str | None = None
    """First part of the names of the baselines whose times go stale, whatever the candidate's language."""


TABLE: Mapping[str, Matters] = {
    "torch": Matters(3, values=_FRAMEWORK, baseline="torch"),
    "triton": Matters(3, values=_GPU_JIT, baseline="triton"),
    "helion": Matters(3, values=frozenset({"helion"})),
    "tilelang": Matters(3, values=frozenset({"tilelang"})),
    "nvidia-cutlass-dsl": Matters(3, values=frozenset({"cute_dsl"})),
    "cuda-tile": Matters(3, values=frozenset({"cutile"})),
    "flashinfer": Matters(3, baseline="flashinfer"),
    # The libraries of the CUDA toolkit do the framework's matrix products: baselines move with them.
    "cuda": Matters(2, values=_NVCC, timing=_FRAMEWORK, baseline="torch"),
    "nvcc": Matters(2, values=_NVCC),
    "hip": Matters(2, values=frozenset({"hip"}), timing=_FRAMEWORK, baseline="torch"),
    "driver": Matters(2, timing=ANY),
    # The launch of a kernel goes through the interpreter; what it computes does not.
    "python": Matters(2, timing=ANY),
    "numpy": Matters(2, values=frozenset({"python"})),
}
"""Component to what its change matters to. What is not here makes nothing stale."""


def cut(component: str, version: str) -> str:
    """Return a version as far as a change of it can matter.

    Args:
        component: A key of :data:`TABLE`.
        version: ``2.11.0+cu130``; the local part after ``+`` is left out.
    """
    parts = version.strip().partition("+")[0].split(".")
    return ".".join(parts[: TABLE[component].digits])


def versions_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Read the toolchain of a record: component to version, as far as it counts.

    Args:
        record: The plain form of a record; ``software`` and ``device`` are read.

    Returns:
        Known components only. CUDA's version is that of torch's build where none is stated.
    """
    software: Mapping[str, Any] = record.get("software") or {}
    device: Mapping[str, Any] = record.get("device") or {}
    found: dict[str, str] = {}
    for component in TABLE:
        for given in (software.get(component), device.get(component)):
            if isinstance(given, str) and given.strip():
                found.setdefault(component, cut(component, given))
    built = _built_with(str(software.get("torch") or ""))
    if built is not None:
        found.setdefault("cuda", cut("cuda", built))
    return {component: found[component] for component in TABLE if component in found}


def _built_with(torch: str) -> str | None:
    """Return the CUDA version in torch's own: ``2.11.0+cu130`` was built with 13.0."""
    local = torch.partition("+")[2]
    digits = local.removeprefix("cu")
    return f"{digits[:-1]}.{digits[-1]}" if local.startswith("cu") and digits.isdecimal() and len(digits) > 2 else None


def pins(language: str, *, timing: bool, baselines: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Name the components that evidence hangs on.

    Args:
        language: Of the entry.
        timing: True for times, False for values alone.
        baselines: Names of what was timed against.

    Returns:
        Keys of :data:`TABLE`, in its order.
    """
    found = []
    for component, matters in TABLE.items():
        named = any(one.split(".", 1)[0].split(" ", 1)[0] == matters.baseline for one in baselines)
        of_values = language in matters.values
        if of_values or (timing and (named or language in matters.timing or matters.timing == ANY)):
            found.append(component)
    return tuple(found)
