"""Times of KernelBench's problems (``results/timing/<machine>/baseline_time_<mode>.json``).

Milliseconds, mean of 100 trials, caches warm; no version of anything inside. The files say nothing of shapes, so their
work is unknown here, and a time on another device cannot be predicted from them: they are read to be counted and
compared, not to be fitted.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kb.errors import SourceUnavailableError
from kb.values import Frozen

_US_PER_MS = 1000.0


class ProblemTime(Frozen):
    """The time of one problem in one mode on one device."""

    device: str
    mode: str
    """``torch``, ``torch_compile_inductor_default`` and so on."""
    level: str
    problem: str
    mean_us: float
    std_us: float


def times(file: Path, *, skip: Callable[[str], None]) -> list[ProblemTime]:
    """Read one file of times.

    Args:
        file: ``baseline_time_<mode>.json``.
        skip: Told why a problem was left out, once a problem.

    Raises:
        SourceUnavailableError: It cannot be read, or is no such file.
    """
    try:
        levels = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SourceUnavailableError(f"{file} cannot be read as JSON: {error}") from error
    if not isinstance(levels, dict) or not all(isinstance(one, dict) for one in levels.values()):
        raise SourceUnavailableError(f"{file} is no file of times: an object of levels was expected")
    mode = file.stem.removeprefix("baseline_time_")
    made = []
    for level, problems in levels.items():
        for problem, raw in problems.items():
            found = _time(raw, mode=mode, level=level, problem=problem)
            if found is None:
                skip("kernelbench: a problem without a time")
            else:
                made.append(found)
    return made


def _time(raw: Any, *, mode: str, level: str, problem: str) -> ProblemTime | None:  # noqa: ANN401 - JSON
    if not isinstance(raw, dict):
        return None
    mean, std = raw.get("mean"), raw.get("std")
    if not isinstance(mean, (int, float)) or not isinstance(std, (int, float)) or not 0 < mean < float("inf"):
        return None
    return ProblemTime(str(raw.get("hardware", "")), mode, level, problem, mean * _US_PER_MS, std * _US_PER_MS)
