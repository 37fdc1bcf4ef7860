"""A judgement in a process of its own, so that a server need not load torch and can end it at any moment.

Its argument is the number of the process that it must not outlive. Orders and answers are JSON lines: one order comes
in on stdin; ``{"progress": …}`` goes out any number of times, then one ``{"report": …}`` or
``{"error": …, "message": …, "hint": …}``.
"""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from kb.errors import KbError

_SIGNAL_AT_PARENTS_DEATH = 1
"""PR_SET_PDEATHSIG of prctl(2)."""

_NICER = 5
"""A server's answers come first: a judgement without timing can wait for a processor."""


def main() -> int:
    """Carry out the order that stdin gives; return the exit code."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else writes to stdout must not look like an answer

    def tell(**said: Any) -> None:  # noqa: ANN401 - plain JSON
        out.write(json.dumps(said) + "\n")
        out.flush()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that folders are removed on the way out
    _end_with(int(sys.argv[1]))
    order = json.loads(sys.stdin.readline())
    if hasattr(os, "nice"):
        os.nice(_NICER)
    try:
        tell(report=_judged(order, tell))
    except KbError as error:
        tell(error=type(error).__name__, message=error.message, hint=error.hint)
        return error.exit_code
    return 0


def _end_with(parent: int) -> None:
    """Be told to end when whoever ordered the judgement is gone, also if it was killed and could say nothing."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SIGNAL_AT_PARENTS_DEATH, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(143)  # it was gone before


def _judged(order: dict[str, Any], tell: Any) -> dict[str, Any]:  # noqa: ANN401 - a function of keywords
    from kb.service.judging import judge_file

    with tempfile.TemporaryDirectory(prefix="kb-candidate-") as folder:
        file = Path(folder) / "candidate.py"
        file.write_text(order["source"], encoding="utf-8")
        report = judge_file(
            order["operator"],
            file,
            device=order["device"],
            dtypes=order["dtypes"],
            ghosts=order["ghosts"],
            progress=lambda phrase: tell(progress=phrase),
        )
    return report.to_json()


if __name__ == "__main__":
    sys.exit(main())
