"""Runs git so that a repository cannot make it do anything.

git is started in a bare repository of our own that borrows the source's objects. So the source's configuration, hooks,
attributes, filters, replacements and partial-clone promises are never read: what is not read needs no list of what in
it is dangerous. GitPython runs git inside the repository that it is given, and would read all of that.
"""

import io
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from kb.errors import SourceFormatError, SourceUnavailableError

_FIXED = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.commitGraph=false", "core.quotePath=false",
    "gc.auto=0", "maintenance.auto=false", "submodule.recurse=false", "fetch.recurseSubmodules=false",
    "fetch.writeCommitGraph=false", "protocol.allow=never", "safe.directory=*", "credential.helper=",
    "http.followRedirects=initial", "http.lowSpeedLimit=1000", "http.lowSpeedTime=60",
)  # fmt: skip
_PASSED = ("PATH", "HOME", "SYSTEMROOT", "TEMP", "TMP", "SSH_AUTH_SOCK", "https_proxy", "HTTPS_PROXY", "no_proxy",
           "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")  # fmt: skip
_LONGEST_S = 120.0
"""For one command that reads objects on this machine."""
_BLOCK = 1 << 16


def environment(git_dir: Path, objects: Path | None = None) -> dict[str, str]:
    """Return all that git is told by its environment; nothing of the user's or the machine's configuration.

    Args:
        git_dir: The repository of our own.
        objects: Where the objects lie; None for those in ``git_dir``.
    """
    made = {name: os.environ[name] for name in _PASSED if name in os.environ}
    made |= {
        "GIT_DIR": str(git_dir),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
        "LC_ALL": "C",
    }
    if objects is not None:
        made["GIT_OBJECT_DIRECTORY"] = str(objects)
    return made


def words(*arguments: str, settings: Sequence[str] = ()) -> list[str]:
    """Return a command line of git with the settings that hold for every call.

    Raises:
        SourceUnavailableError: There is no git on this machine.
    """
    program = shutil.which("git")
    if program is None:
        raise SourceUnavailableError("a git repository needs the program git", hint="install git 2.30 or later")
    fixed = [part for one in (*_FIXED, *settings) for part in ("-c", one)]
    return [program, "--no-pager", *fixed, *arguments]


def run(git_dir: Path, *arguments: str, objects: Path | None = None, timeout_s: float = _LONGEST_S) -> bytes:
    """Run one short command and return what it says.

    Raises:
        SourceFormatError: It fails, or takes too long.
    """
    try:
        done = subprocess.run(  # noqa: S603 - git alone, its words as a list
            words(*arguments),
            env=environment(git_dir, objects),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SourceFormatError(f"git {arguments[0]} took more than {timeout_s:.0f} s") from error
    if done.returncode:
        raise SourceFormatError(f"git {arguments[0]}: {said(done.stderr)}")
    return done.stdout


def said(stderr: bytes) -> str:
    """Return the end of what git complains of, in one line that can be printed and names no user or secret."""
    text = " ".join(stderr.decode("utf-8", "replace").split())[-200:]
    return "".join(one if one.isprintable() else "?" for one in text) or "it failed without a word"


def start(
    git_dir: Path, *arguments: str, objects: Path | None = None, settings: Sequence[str] = ()
) -> "subprocess.Popen[bytes]":
    """Start a command whose output is read as it comes; it gets a session of its own, to be ended as a whole."""
    return subprocess.Popen(  # noqa: S603 - git alone, its words as a list
        words(*arguments, settings=settings),
        env=environment(git_dir, objects),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and whatever it started."""
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    process.wait()


class Batch:
    """One ``git cat-file`` that answers questions for objects until it is closed; ended if an answer takes too long."""

    def __init__(self, git_dir: Path, objects: Path, how: str, *, patience_s: float = 60.0) -> None:
        self._arguments = (git_dir, objects, how)
        self._patience_s = patience_s
        self._process: subprocess.Popen[bytes] | None = None
        self._since: float | None = None

    def __getstate__(self) -> Mapping[str, object]:
        return {**self.__dict__, "_process": None, "_since": None}

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        process = self._process
        if process is None or process.poll() is not None:
            self.close()
            git_dir, objects, how = self._arguments
            process = self._process = start(git_dir, "cat-file", how, objects=objects)
            threading.Thread(target=self._watch, args=(process,), daemon=True).start()
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise SourceFormatError("git cat-file cannot be talked to")
        return process.stdin, process.stdout

    def _watch(self, process: "subprocess.Popen[bytes]") -> None:
        while process is self._process and process.poll() is None:
            since = self._since
            if since is not None and time.monotonic() - since > self._patience_s:
                with suppress(OSError):
                    process.kill()
                return
            time.sleep(0.5)

    def headers(self, names: Sequence[str]) -> Iterator[tuple[str, int] | None]:
        """Yield kind and size of objects, or None where one is missing; for a batch that only checks.

        Raises:
            SourceFormatError: git cannot read the repository.
        """
        for begin in range(0, len(names), 500):
            part = names[begin : begin + 500]
            stdin, stdout = self._pipes()
            self._since = time.monotonic()
            try:
                stdin.write("".join(f"{name}\n" for name in part).encode("ascii"))
                stdin.flush()
                yield from (self._header(stdout.readline()) for _ in part)
            except OSError as error:
                raise SourceFormatError("git cannot read the repository's objects") from error
            finally:
                self._since = None

    @staticmethod
    def _header(line: bytes) -> tuple[str, int] | None:
        parts = line.split()
        if len(parts) == 3 and parts[2].isdigit():
            return parts[1].decode("ascii", "replace"), int(parts[2])
        if not line:
            raise SourceFormatError("git cannot read the repository's objects: an object is broken")
        return None

    def body(self, name: str, limit: int) -> tuple[str, bytes]:
        """Return kind and bytes of one object.

        Args:
            name: Its whole id.
            limit: Most bytes; asked for only what was checked to be no larger.

        Raises:
            SourceFormatError: It is missing, broken or larger.
        """
        file = io.BytesIO()
        kind = self.copy(name, limit, file)
        return kind, file.getvalue()

    def copy(self, name: str, limit: int, file: IO[bytes]) -> str:
        """Write the bytes of one object into a file, piece by piece, and return its kind.

        Args:
            name: Its whole id.
            limit: Most bytes that it may have.
            file: Open for writing.

        Raises:
            SourceFormatError: It is missing, broken or larger, or cannot be written.
        """
        stdin, stdout = self._pipes()
        self._since = time.monotonic()
        try:
            stdin.write(f"{name}\n".encode("ascii"))
            stdin.flush()
            header = self._header(stdout.readline())
            if header is None:
                raise SourceFormatError("the object is not in the repository: a shallow or partial clone")
            if header[1] > limit:
                self.close()
                raise SourceFormatError(f"expected at most {limit:,} bytes, found {header[1]:,}")
            rest = header[1]
            while rest and (block := stdout.read(min(rest, _BLOCK))):
                file.write(block)
                rest -= len(block)
                self._since = time.monotonic()
            if rest or stdout.read(1) != b"\n":
                self.close()
                raise SourceFormatError("git cannot read the repository's objects: an object is broken")
        except OSError as error:
            self.close()  # what was not read would be taken for the next answer
            raise SourceFormatError("git cannot read the repository's objects") from error
        finally:
            self._since = None
        return header[0]

    def close(self) -> None:
        """End the process; the next question starts another."""
        process, self._process = self._process, None
        if process is not None:
            end(process)
