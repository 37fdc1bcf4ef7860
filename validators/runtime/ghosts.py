"""Ghost replay: stub each kernel or function of a candidate in turn and see whether the result still comes out right.

A kernel whose absence changes nothing does not do the work. Runs in a worker of its own, never in the one that was
judged. Kernels are found where Triton launches them, so a dispatch table or a closure hides none.
"""

import importlib
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

_LAUNCHERS = (("triton.runtime.interpreter", "InterpretedFunction"), ("triton.runtime.jit", "JITFunction"))


class _Haunting:
    """Counts of one trace, and who is a ghost."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.raised: dict[str, int] = {}
        self.inside: list[str] = []
        self.launched_below: dict[str, set[str]] = {}
        self.launched: dict[str, dict[str, Any]] = {}
        """Kernel to the parameters that it was last launched with: after an autotuner, those that it chose."""
        self.ghost: str | None = None


_STATE = _Haunting()


class GhostError(RuntimeError):
    """What a ghost function raises instead of working."""


def candidates(module: ModuleType | None) -> list[str]:
    """Name the module's own plain functions."""
    if module is None:
        return []
    return [
        f"function:{name}"
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == module.__name__
    ]


def trace(module: ModuleType | None) -> dict[str, Any]:
    """Start counting calls of the module's own functions and all kernel launches."""
    if module is None:
        return {"traced": []}
    for path, name in _LAUNCHERS:
        try:
            launcher = getattr(importlib.import_module(path), name)
        except (ImportError, AttributeError):
            continue
        launcher.run = _watch_launch(launcher.run)
    # Fresh memory holds no numbers from here on: what a ghost leaves unwritten cannot come right by zeros or leftovers.
    torch = importlib.import_module("torch")
    torch.use_deterministic_algorithms(True, warn_only=True)
    own = candidates(module)
    for key in own:
        name = key.removeprefix("function:")
        setattr(module, name, _watch(key, getattr(module, name)))
    return {"traced": own}


def reached(_module: ModuleType | None) -> dict[str, Any]:
    """Say what was called since ``trace``: calls, how often it raised, and which kernels it launched, and how."""
    return {
        "calls": dict(_STATE.calls),
        "raised": dict(_STATE.raised),
        "below": {name: sorted(found) for name, found in _STATE.launched_below.items()},
        "launched": dict(_STATE.launched),
    }


def haunt(_module: ModuleType | None, name: str | None) -> None:
    """Make one traced function or kernel a ghost; None brings everybody back."""
    _STATE.ghost = name


def _watch(key: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - stands in for any function
        _STATE.calls[key] = _STATE.calls.get(key, 0) + 1
        if _STATE.ghost == key:
            raise GhostError("a ghost does no work")
        _STATE.inside.append(key)
        try:
            return function(*args, **kwargs)
        except BaseException:
            _STATE.raised[key] = _STATE.raised.get(key, 0) + 1
            raise
        finally:
            _STATE.inside.pop()

    watched.__name__ = function.__name__
    watched.__wrapped__ = function  # type: ignore[attr-defined]
    return watched


def _watch_launch(launch: Callable[..., Any]) -> Callable[..., Any]:
    def watched(kernel: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - stands in for any kernel's launch
        key = "kernel:" + str(getattr(getattr(kernel, "fn", kernel), "__name__", "kernel"))
        _STATE.calls[key] = _STATE.calls.get(key, 0) + 1
        for name in _STATE.inside:
            _STATE.launched_below.setdefault(name, set()).add(key)
        _STATE.launched[key] = {name: value for name, value in kwargs.items() if type(value) in (int, bool, str)}
        _STATE.launched[key].pop("warmup", None)  # Triton's own
        if _STATE.ghost == key:
            return None
        try:
            return launch(kernel, *args, **kwargs)
        except BaseException:
            _STATE.raised[key] = _STATE.raised.get(key, 0) + 1
            raise

    return watched
