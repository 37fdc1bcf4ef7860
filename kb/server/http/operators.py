"""The operator specs, described by a process of their own: describing them needs torch, which a server does not."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from kb import catalogue
from kb.config import derived_folder
from kb.errors import ConfigError, StoreError
from kb.server.http.state import State
from kb.service.judging import operator_names
from kb.service.judging_apart import environment
from kb.store.locks import locked
from kb.validators.operators.names import NAMES

FILE = "operators.json"

_LONGEST_S = 180.0

Sheet = list[dict[str, Any]]


def sheet(state: State) -> tuple[Sheet, bool]:
    """Return a description of every operator, and whether there is more than its name.

    Args:
        state: What routes share.
    """
    judge = catalogue.judge_state()
    return state.remembered.get("operators", judge, lambda: _sheet(state, judge))


def _sheet(state: State, judge: str) -> tuple[Sheet, bool]:
    bare = [{"name": name} for name in NAMES]
    try:
        folder = derived_folder(state.root)
        with locked(folder / "operators.lock", wait_s=_LONGEST_S):
            kept = _kept(folder / FILE, judge)
            if kept is not None:
                return kept, True
            made = _made(folder)
            if made is None:
                return bare, False
            _keep(folder / FILE, judge, made)
            return made, True
    except (ConfigError, StoreError):
        return bare, False


def _kept(file: Path, judge: str) -> Sheet | None:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return list(found["operators"]) if found["judge"] == judge else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(file: Path, judge: str, made: Sheet) -> None:
    with tempfile.NamedTemporaryFile("w", dir=file.parent, suffix=".part", delete=False, encoding="utf-8") as part:
        json.dump({"judge": judge, "operators": made}, part)
    Path(part.name).replace(file)


def _made(folder: Path) -> Sheet | None:
    argv = [sys.executable, "-P", "-m", "kb.server.http.operators"]
    try:
        done = subprocess.run(  # noqa: S603 - our own module
            argv,
            cwd=folder,
            env=environment(),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_LONGEST_S,
            check=False,
        )
        return list(json.loads(done.stdout)) if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def main() -> None:
    """Write the description of every operator to stdout."""
    from kb.service.judging import describe_operator

    summaries = {one["name"]: one["summary"] for one in operator_names()}
    rows = [{**describe_operator(name), "summary": summaries[name]} for name in NAMES]
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
