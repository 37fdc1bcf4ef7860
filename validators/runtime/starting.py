"""How processes of the judge are started: in a fresh interpreter, or forked by the nursery."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from kb.validators.runtime import forking
from kb.validators.runtime.errors import JudgeError
from kb.validators.runtime.launching import Launch, Process


def boot_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of kb in a fresh, isolated interpreter."""
    home = Path(__file__).resolve().parents[2]
    package = sys.modules["kb"].__file__
    if package is not None:
        home = Path(package).resolve().parents[1]
    code = f"import sys; sys.path.insert(0, {str(home)!r}); from {module} import main; sys.path.pop(0); main()"
    if module.endswith((".reference", ".arbiter")):
        code = code.replace("sys.path.pop(0); ", "")
    return [sys.executable, "-I", "-B", "-c", code, *arguments]


def toolchain_environment() -> dict[str, str]:
    """Return the variables that libraries read when they are loaded: the same for every worker on the CPU."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE") if name in os.environ}
    return kept | {
        "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "random", "LC_ALL": "C.UTF-8",
        # Idle OpenMP threads sleep instead of spinning, so that spinning is not mistaken for late work.
        "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0",
        # Memory that nobody wrote holds a pattern, so that no result comes right by zeros or leftovers.
        "MALLOC_PERTURB_": "165",
    }  # fmt: skip


def _nursery() -> dict[str, Any]:
    return {"command": boot_command("kb.validators.runtime.nursery"), "environment": toolchain_environment()}


def prepare() -> None:
    """Start importing torch for the workers to come; returns at once."""
    with contextlib.suppress(OSError):  # whoever needs the nursery will say so
        forking.prepare(**_nursery())


def fork(module: str, *arguments: str, launch: Launch, given: int | None = None) -> forking.Forked:
    """Start a module in a process forked by the nursery; see ``forking.fork``.

    Raises:
        JudgeError: torch cannot be imported here, or memory or processes are short.
    """
    try:
        return forking.fork(module, *arguments, launch=launch, given=given, **_nursery())
    except forking.NurseryError as error:
        raise JudgeError(
            str(error), "the judge needs Linux with Landlock and seccomp, torch, and some free memory: kb doctor"
        ) from error


def boot(module: str, *, launch: Launch) -> Process:
    """Start a module in a fresh, isolated interpreter."""
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        boot_command(module, *map(str, launch.handles)),
        stdin=subprocess.DEVNULL,
        stdout=launch.output,
        stderr=launch.output,
        env=dict(launch.environment),
        cwd=launch.folder,
        pass_fds=launch.handles,
        start_new_session=True,
    )
