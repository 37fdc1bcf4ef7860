"""The outer process's handle on one inner process of a bundle. Standard library only."""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kb.validators.runtime import sealing


class BoxError(Exception):
    """Nothing can be done here; the message says what and what next."""


class InnerEndedError(Exception):
    """The inner process is gone."""


class OutOfTimeError(Exception):
    """The time that was given is used up."""


class Inner:
    """The inner process, and its lines."""

    def __init__(self, home: Path, device: str, *, threads: int | None = None) -> None:
        """Start the process.

        Args:
            home: Where the judge was unpacked.
            device: ``cpu`` or ``cuda:N``.
            threads: Of its own arithmetic, where others are beside it; None for as many as there are cores.
        """
        read_end, write_end = os.pipe()
        code = f"import sys; sys.path.insert(0, {str(home)!r}); from kb.validators.runtime.boxed import main; main()"
        self._errors = tempfile.TemporaryFile(dir=home)  # noqa: SIM115 - closed in end
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-I", "-B", "-c", code, str(write_end), device, str(home)],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._errors, cwd=home,
                env=None if threads is None else os.environ | {"OMP_NUM_THREADS": str(threads)},
                pass_fds=(write_end,), start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(write_end)
        self._descriptor = read_end
        self._held = b""

    def send(self, order: Mapping[str, Any]) -> None:
        """Hand over one order."""
        if self.process.stdin is None:
            raise InnerEndedError("it has no input")
        try:
            self.process.stdin.write(sealing.canonical(order) + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise InnerEndedError(str(error)) from error

    def answer(self, deadline: float | None) -> dict[str, Any]:
        """Wait for the next line.

        Args:
            deadline: On the monotonic clock; None for none.

        Raises:
            InnerEndedError: It is gone.
            OutOfTimeError: The deadline has passed.
        """
        while b"\n" not in self._held:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise OutOfTimeError
            if not select.select([self._descriptor], [], [], left)[0]:
                continue
            part = os.read(self._descriptor, 1 << 20)
            if not part:
                code = self.process.wait()
                raise InnerEndedError(f"the judge's process ended with code {code}: {self._said()}")
            self._held += part
        line, _, self._held = self._held.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-400:].decode("utf-8", "replace").strip().replace("\n", " | ")

    def printed(self) -> str:
        """Return the last that it printed on standard error: a traceback, where it has ended by one."""
        self._errors.seek(0)
        return self._errors.read()[-6000:].decode("utf-8", "replace")

    def end(self) -> None:
        """End it, and with it its workers."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        os.close(self._descriptor)
        self._errors.close()
