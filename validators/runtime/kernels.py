"""Which kernels ran on the device: recorded in a worker of its own, and how much of the time was the candidate's own.

Names of own kernels come from the source: functions under ``triton.jit``, and ``__global__`` functions in its texts.
Both the record and the names are hints in a report; values and clocks decide.
"""

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any

_MOST = 64
_GLOBAL = re.compile(
    r"__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)"
)
_GENERATED = "triton_"
"""What a compiler calls the kernels that it writes: neither own nor a library's."""


def recorded(run: Callable[[], object], synchronize: Callable[[], None]) -> list[list[Any]]:
    """Call ``run`` under the profiler.

    Args:
        run: The call to make; the device is idle before it.
        synchronize: Waits for all of the device's work.

    Returns:
        ``[name, launches, microseconds]`` for each kernel or copy on the device, most time first.
    """
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run()
        synchronize()
    found: dict[str, list[Any]] = {}
    for event in seen.profiler.kineto_results.events():
        if not str(event.device_type()).endswith("CUDA"):
            continue
        row = found.setdefault(event.name()[:120], [event.name()[:120], 0, 0.0])
        row[1] += 1
        row[2] += event.duration_ns() / 1e3
    return sorted(found.values(), key=lambda row: -row[2])[:_MOST]


def own_names(source: bytes) -> frozenset[str]:
    """Name the kernels that a source defines, those in its texts too; empty if it does not parse."""
    texts = [one.value for one in _nodes(source) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return jitted_names(source) | {name for text in texts for name in _GLOBAL.findall(text)}


def jitted_names(source: bytes) -> frozenset[str]:
    """Name the functions under ``triton.jit`` that a source launches itself: those that none of the others calls."""
    functions = [
        node
        for node in _nodes(source)
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(one) for one in node.decorator_list)
    ]
    called = {
        inner.func.id
        for node in functions
        for inner in ast.walk(node)
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name)
    }
    return frozenset(node.name for node in functions) - called


def _nodes(source: bytes) -> list[ast.AST]:
    try:
        return list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def summary(rows: Sequence[Sequence[Any]], source: bytes) -> dict[str, Any]:
    """Say whose the time on the device was.

    Args:
        rows: What ``recorded`` returned, over one or several calls.
        source: The candidate's file.

    Returns:
        ``device``: name, launches, microseconds and owner (``own``, ``generated`` or ``library``) of each kernel;
        ``own_share`` and ``generated_share``: of the device time, 0 to 1, None where nothing ran; ``declared``: own
        kernels of the source; ``never_ran``: those under ``triton.jit`` that no record has, whose names are certain;
        ``jitted_ran``: whether one of those ran, None if there is none.
    """
    own = own_names(source)
    merged: dict[str, dict[str, Any]] = {}
    for name, launches, microseconds in rows:
        row = merged.setdefault(
            str(name), {"name": str(name), "launches": 0, "us": 0.0, "owner": _owner(str(name), own)}
        )
        row["launches"] += int(launches)
        row["us"] += float(microseconds)
    total = sum(row["us"] for row in merged.values())
    shares = {owner: sum(r["us"] for r in merged.values() if r["owner"] == owner) for owner in ("own", "generated")}
    ran = {one for one in own for row in merged.values() if _is(row["name"], one)}
    jitted = jitted_names(source)
    return {
        "device": [
            {**row, "us": round(row["us"], 3)} for row in sorted(merged.values(), key=lambda one: -one["us"])[:_MOST]
        ],
        "own_share": round(shares["own"] / total, 4) if total else None,
        "generated_share": round(shares["generated"] / total, 4) if total else None,
        "declared": sorted(own),
        "never_ran": sorted(jitted - ran),
        "jitted_ran": bool(ran & jitted) if jitted else None,
    }


def _is(name: str, own: str) -> bool:
    """Tell whether a kernel's name on the device is a function's: as it is, or mangled as C++ does it."""
    return name == own or name.startswith((f"{own}(", f"{own}<", f"void {own}")) or f"{len(own)}{own}" in name


def _owner(name: str, own: frozenset[str]) -> str:
    if any(_is(name, one) for one in own):
        return "own"
    return "generated" if name.startswith(_GENERATED) else "library"
