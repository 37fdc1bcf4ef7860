"""What ``python job.pyz`` runs: the outer process of a bundle. Standard library only; it alone holds the job's key.

It unpacks the judge into a private folder, without the key, starts the inner process on it, hands over one entry at a
time, seals what comes back, and writes the file after every entry, so that a kill loses nothing that was done.
"""

import argparse
import ctypes
import json
import os
import select
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kb.validators.runtime import sealing
from kb.validators.runtime.workplace import Workplace

DONE, USAGE, NOT_ACCEPTED, STOPPED = 0, 2, 20, 21
"""Exit codes: all accepted; nothing could be done; something was not accepted; stopped before the end, resume it."""

JOB, KEY = "job.json", "key"
_READY_LIMIT_S = 300
_PR_SET_DUMPABLE = 4


class BoxError(Exception):
    """Nothing can be done here; the message says what and what next."""


class InnerEndedError(Exception):
    """The inner process is gone."""


class OutOfTimeError(Exception):
    """The time that was given is used up."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a bundle.

    Args:
        argv: Arguments; those of the process if None.

    Returns:
        The exit code.
    """
    archive = Path(sys.argv[0]).resolve()
    try:
        job, key = _opened(archive)
        asked = _arguments(argv, job)
        _keep_private(archive)
        return _Run(archive, job, key, asked).run()
    except (BoxError, sealing.SealError) as error:
        _tell(f"error: {error}")
        return USAGE
    except OSError as error:
        _tell(f"error: {error}")
        return USAGE


def _tell(text: str) -> None:
    sys.stderr.write("".join(c if c.isprintable() or c == "\n" else "?" for c in text) + "\n")
    sys.stderr.flush()


def _opened(archive: Path) -> tuple[dict[str, Any], bytes]:
    try:
        with zipfile.ZipFile(archive) as opened:
            job: dict[str, Any] = json.loads(opened.read(JOB))
            return job, bytes.fromhex(opened.read(KEY).decode("ascii"))
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise BoxError(f"{archive} is no bundle: make one with kb bundle") from error


def _arguments(argv: Sequence[str] | None, job: Mapping[str, Any]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python " + Path(sys.argv[0]).name,
        description=f"Judge {len(job['entries'])} entries here and write evidence for kb accept.",
        epilog="Exit codes: 0 all accepted, 2 nothing could be done, 20 not all accepted, 21 stopped: use --resume.",
    )
    parser.add_argument("-o", "--output", default="evidence.json", help="where to write (default: %(default)s)")
    parser.add_argument("--device", default="cpu" if job["device_kind"] == "cpu" else "cuda:0", help="cpu or cuda:N")
    parser.add_argument("--only", nargs="+", metavar="ID", help="these entries alone")
    parser.add_argument("--limit-s", type=float, metavar="N", help="stop after so many seconds")
    parser.add_argument("--resume", action="store_true", help="go on with the evidence that is there")
    parser.add_argument("--list", action="store_true", help="show the entries and do nothing")
    asked = parser.parse_args(argv)
    known = {one["id"] for one in job["entries"]}
    for name in asked.only or ():
        if name not in known:
            raise BoxError(f"{name} is not in this bundle; --list shows what is")
    kind = asked.device.partition(":")[0]
    if kind != job["device_kind"]:
        raise BoxError(f"this bundle was made for {job['device_kind']}, not for {kind}: kb bundle --device-kind {kind}")
    return asked


def _keep_private(archive: Path) -> None:
    """Let nobody but this user read the bundle, and no other process look into this one: both hold the key."""
    if archive.stat().st_mode & 0o077:
        try:
            archive.chmod(0o600)
        except OSError as error:
            raise BoxError(f"others may read {archive}, and it holds a key: chmod 600 {archive}") from error
        _tell(f"note: {archive.name} is now readable by its owner alone, because it holds a key")
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


class _Inner:
    """The inner process, and its lines."""

    def __init__(self, home: Path, device: str) -> None:
        read_end, write_end = os.pipe()
        code = f"import sys; sys.path.insert(0, {str(home)!r}); from kb.validators.runtime.boxed import main; main()"
        self._errors = (home / "errors.txt").open("w+b")
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-I", "-B", "-c", code, str(write_end), device, str(home)],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._errors, cwd=home,
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

    def end(self) -> None:
        """End it, and with it its workers."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        os.close(self._descriptor)
        self._errors.close()


class _Run:
    """One run of a bundle."""

    def __init__(self, archive: Path, job: Mapping[str, Any], key: bytes, asked: argparse.Namespace) -> None:
        self.archive, self.job, self.key, self.asked = archive, job, key, asked
        self.output = Path(asked.output).resolve()
        self.deadline = None if asked.limit_s is None else time.monotonic() + asked.limit_s
        self.document = sealing.empty(str(job["job"]))
        self.facts: dict[str, Any] = {}
        self.inner: _Inner | None = None
        self.held: dict[str, Any] | None = None
        self.home = Path()

    def run(self) -> int:
        """Judge what is asked for; returns the exit code."""
        wanted = [one for one in self.job["entries"] if not self.asked.only or one["id"] in self.asked.only]
        if self.asked.list:
            for one in wanted:
                sys.stdout.write(f"{one['id']}@{one['version']}  {len(one['workloads'])} workloads\n")
            return DONE
        self._take_up()
        again = set(self.document["untimed"])
        done = {one["entry"]["id"] for one in self.document["evidence"]} - again
        todo = [one for one in wanted if one["id"] not in done]
        self.document["skipped"] = []
        place = Workplace()
        try:
            self.home = place.folder("bundle")
            self._unpack()
            complete = self._all(todo)
        except KeyboardInterrupt:
            self._keep_held()
            complete = False
        finally:
            if self.inner is not None:
                self.inner.end()
            place.close()
        return self._summary(complete)

    def _take_up(self) -> None:
        """Go on with the file that is there, or see that there is none."""
        if not self.output.exists():
            self.output.parent.mkdir(parents=True, exist_ok=True)
            return
        if not self.asked.resume:
            raise BoxError(f"{self.output} is there already: --resume goes on with it, -o writes another file")
        found = sealing.read(self.output)
        if found["job"] != self.job["job"] or not sealing.is_sealed(found, self.key):
            raise BoxError(f"{self.output} was not written by this bundle, or was changed: -o writes another file")
        self.document = found

    def _unpack(self) -> None:
        with zipfile.ZipFile(self.archive) as opened:
            for name in opened.namelist():
                if name not in (KEY, "__main__.py") and not name.endswith("/"):
                    target = self.home / name
                    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                    target.write_bytes(opened.read(name))

    def _all(self, todo: Sequence[Mapping[str, Any]]) -> bool:
        """Judge one entry after another; returns False if time ran out."""
        for number, order in enumerate(todo, start=1):
            label = f"[{number}/{len(todo)}] {order['id']}@{order['version']}"
            self.held = None
            try:
                self._start()
                reason = self._fitting(order)
                if reason is None:
                    reason = self._one(order, label)
            except OutOfTimeError:
                _tell(f"{label}: stopped, --limit-s is used up{'; its values are kept' if self.held else ''}")
                self._keep_held()
                return False
            except InnerEndedError as error:
                reason = str(error)
                self._keep_held()
                self._forget_inner()
            if reason is not None:
                _tell(f"{label}: skipped: {reason}")
                self.document["skipped"].append({"id": order["id"], "reason": reason[:600]})
            sealing.write(self.output, self.document, self.key)
        return True

    def _keep_held(self) -> None:
        """Keep the evidence of values of an entry whose timing did not come to its end."""
        held = self.held
        if held is not None:
            self._put(held)
            self.document["untimed"].append(held["entry"]["id"])
            sealing.write(self.output, self.document, self.key)

    def _put(self, made: dict[str, Any]) -> None:
        """Put evidence in the place of what there was of the entry."""
        which = made["entry"]["id"]
        self.document["evidence"] = [one for one in self.document["evidence"] if one["entry"]["id"] != which]
        self.document["evidence"].append(made)
        self.document["untimed"] = [one for one in self.document["untimed"] if one != which]
        self.held = None

    def _start(self) -> None:
        """Start the inner process unless it runs, and see that it can work here."""
        if self.inner is not None:
            return
        self.inner = _Inner(self.home, self.asked.device)
        ends = [time.monotonic() + _READY_LIMIT_S, *([] if self.deadline is None else [self.deadline])]
        try:
            said = self.inner.answer(min(ends))
        except InnerEndedError as error:
            raise BoxError(f"{error}; an isolated Python sees neither PYTHONPATH nor the user's packages") from error
        if "unable" in said:
            hint = "numpy and torch have to be installed where python -I finds them, in a venv, say"
            raise BoxError(f"the judge cannot work here: {said['unable']}; {hint}")
        for folder in said["candidates_read"]:
            if self.archive.is_relative_to(folder):
                raise BoxError(f"candidates may read {folder}: move {self.archive.name} and its key somewhere else")
        if not self.facts:
            _tell(f"{said['ready']['name']} ({said['ready']['arch']}), {said['toolchain']}")
            _tell("the key stays in this process; candidates can read neither it nor the bundle")
        self.facts = said["ready"]

    def _forget_inner(self) -> None:
        if self.inner is not None:
            self.inner.end()
        self.inner = None

    def _fitting(self, order: Mapping[str, Any]) -> str | None:
        """Say why an entry is not for this device, or None."""
        arch = str(self.facts["arch"])
        if arch not in order["runs_on"]:
            return f"whether it runs on {arch} was not known when the bundle was made"
        reason = order["runs_on"][arch]
        return None if reason is None else str(reason)

    def _one(self, order: Mapping[str, Any], label: str) -> str | None:
        """Have one entry judged; returns why it could not be."""
        if self.inner is None:
            raise InnerEndedError("it was not started")
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise OutOfTimeError
        began = time.monotonic()
        _tell(f"{label}: starting")
        self.inner.send({name: value for name, value in order.items() if name != "runs_on"})
        while True:
            said = self.inner.answer(self.deadline)
            if "step" in said:
                _tell(f"{label}: {time.monotonic() - began:.0f} s: {said['step']}")
                continue
            if "held" in said:
                self.held = said["held"]
                continue
            if "skipped" in said:
                return str(said["skipped"])
            self._put(said["evidence"])
            if said["samples"] is not None:
                self.document["samples"][said["evidence"]["samples_sha256"]] = said["samples"]
            decision = said["evidence"]["decision"]
            reasons = f" ({', '.join(decision['reasons'])})" if decision["reasons"] else ""
            sys.stdout.write(
                f"{order['id']}@{order['version']}: {decision['verdict']}{reasons}, {time.monotonic() - began:.0f} s\n"
            )
            sys.stdout.flush()
            return None

    def _summary(self, complete: bool) -> int:
        verdicts = [one["decision"]["verdict"] for one in self.document["evidence"]]
        accepted = verdicts.count("accepted")
        _tell(f"{accepted} of {len(verdicts)} accepted, {len(self.document['skipped'])} skipped")
        if self.output.exists():
            _tell(f"next: kb accept {self.output.name}")
        if not complete:
            _tell(f"not all is done: python {self.archive.name} --resume -o {self.asked.output}")
            return STOPPED
        return DONE if accepted == len(verdicts) else NOT_ACCEPTED
