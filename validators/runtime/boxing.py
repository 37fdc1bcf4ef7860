"""What ``python job.pyz`` runs: the outer process of a bundle. Standard library only; it alone holds the job's key.

It unpacks the judge into a private folder, without the key, starts inner processes on it, hands each one entry at a
time, seals what comes back, and writes the file after every entry, so that a kill loses nothing that was done. Entries
are judged and processes started side by side; while one is timed all others wait (``turns``).
"""

import argparse
import ctypes
import json
import os
import sys
import threading
import time
import zipfile
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from kb.validators.runtime import halting, sealing, telling, turns
from kb.validators.runtime.inner import BoxError, OutOfTimeError
from kb.validators.runtime.lane import Lane
from kb.validators.runtime.workplace import Workplace

DONE, USAGE, NOT_ACCEPTED, STOPPED = 0, 2, 20, 21
"""Exit codes: all accepted; nothing could be done; something was not accepted; stopped before the end, resume it."""

JOB, KEY = "job.json", "key"
_ENTRY_LIMIT_S = {"cpu": 3600.0, "cuda": 300.0}
"""After so long without coming to an end an entry is given up, so that it does not hold up the others."""

_MOST_JOBS = 6
_PR_SET_DUMPABLE = 4


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
        telling.tell(f"error: {error}")
        return USAGE
    except OSError as error:
        telling.tell(f"error: {error}")
        return USAGE


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
    parser.add_argument("--entry-limit-s", type=float, metavar="N", help="give an entry up after so many seconds")
    parser.add_argument("--alone-limit-s", type=float, metavar="N", help="give it up after so many seconds alone")
    parser.add_argument("--jobs", type=int, metavar="N", help="entries at once; times are always taken one at a time")
    parser.add_argument("--resume", action="store_true", help="go on with the evidence that is there")
    parser.add_argument("--list", action="store_true", help="show the entries and do nothing")
    parser.add_argument("--quiet", action="store_true", help="say nothing of single steps")
    asked = parser.parse_args(argv)
    known = {one["id"] for one in job["entries"]}
    for name in asked.only or ():
        if name not in known:
            raise BoxError(f"{name} is not in this bundle; --list shows what is")
    kind = asked.device.partition(":")[0]
    if asked.jobs is None:
        # Cores of a worker, its reference and a compiler.
        asked.jobs = 1 if kind == "cpu" else max(1, min(_MOST_JOBS, (os.cpu_count() or 1) // 3))
    if asked.jobs < 1:
        raise BoxError("--jobs: expected 1 or more")
    if asked.entry_limit_s is None:
        asked.entry_limit_s = _ENTRY_LIMIT_S["cpu" if kind == "cpu" else "cuda"]
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
        telling.tell(f"note: {archive.name} is now readable by its owner alone, because it holds a key")
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


class _Run:
    """One run of a bundle."""

    def __init__(self, archive: Path, job: Mapping[str, Any], key: bytes, asked: argparse.Namespace) -> None:
        self.archive, self.job, self.key, self.asked = archive, job, key, asked
        self.output = Path(asked.output).resolve()
        self.deadline = None if asked.limit_s is None else time.monotonic() + asked.limit_s
        self.document = sealing.empty(str(job["job"]))
        self.facts: dict[str, Any] = {}
        self.peaks: dict[str, Any] | None = None
        self.threads: int | None = None
        self.halt: halting.Halt | None = None
        self.turns = turns.Turns()
        self._lanes: list[Lane] = []
        self.home = Path()
        self.over = self.broken = False
        self.count = 0
        self.began = time.monotonic()
        self.spent: list[dict[str, float]] = []
        self.alone: list[tuple[float, str]] = []
        self._waiting: deque[dict[str, Any]] = deque()
        self._lock = threading.RLock()

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
        failed = {one["id"] for one in self.document["skipped"]}
        todo = sorted((one for one in wanted if one["id"] not in done), key=lambda one: one["id"] in failed)
        self._waiting = deque({**one, "number": number} for number, one in enumerate(todo, start=1))
        self.count = len(todo)
        self.document["skipped"] = []
        place = Workplace()
        try:
            self.home = place.folder("bundle")
            self._unpack()
            complete = self._all(max(1, min(self.asked.jobs, len(todo))))
        finally:
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

    def _all(self, jobs: int) -> bool:
        """Judge all entries, some side by side; returns False if time ran out or somebody stopped it.

        Raises:
            BoxError: Nothing can be done here.
        """
        if jobs > 1:
            # Threads of many judges beside one another wait for each other more than they work.
            self.threads = max(2, 2 * (os.cpu_count() or 1) // jobs)
            self.halt, self.turns = halting.Halt(), turns.Turns(halting=True)
        lanes = self._lanes = [Lane(self) for _ in range(jobs)]
        with ThreadPoolExecutor(jobs) as pool:
            ended = [pool.submit(lane.work) for lane in lanes]
            try:
                wait(ended, return_when=FIRST_EXCEPTION)
            except KeyboardInterrupt:
                ended.append(pool.submit(_interrupted))
            finally:
                failed = [one for one in ended if one.done() and one.exception() is not None]
                self.over = bool(failed) or len(ended) > jobs
                if self.over:
                    self.turns.end()
                    for lane in lanes:
                        lane.kill()
                wait(ended)
                for lane in lanes:
                    lane.end()
        faults = [one.exception() for one in ended]
        for fault in faults:
            if fault is not None and not isinstance(fault, OutOfTimeError):
                raise fault
        return not any(faults)

    def next(self) -> dict[str, Any] | None:
        """Return the next order, None if there is none.

        Raises:
            OutOfTimeError: The run is over.
        """
        with self._lock:
            if not self._waiting:
                return None
            if self.over or (self.deadline is not None and time.monotonic() >= self.deadline):
                raise OutOfTimeError
            return self._waiting.popleft()

    def others(self, lane: Lane) -> list[int]:
        """Return the pids of the inner processes of all other lanes."""
        inner = [one.inner for one in self._lanes if one is not lane]
        return [one.process.pid for one in inner if one is not None and one.process.poll() is None]

    def meet(self, said: Mapping[str, Any]) -> None:
        """Take note of what an inner process says of this machine."""
        with self._lock:
            if not self.facts:
                telling.tell(f"{said['ready']['name']} ({said['ready']['arch']}), {said['toolchain']}")
                telling.tell("the key stays in this process; candidates can read neither it nor the bundle")
            self.facts = said["ready"]

    def learn(self, measured: dict[str, Any] | None) -> None:
        """Take note of measured peaks, which all inner processes share."""
        with self._lock:
            self.peaks = self.peaks or measured

    def keep_held(self, held: dict[str, Any] | None) -> None:
        """Keep the evidence of values of an entry whose timing did not come to its end."""
        if held is not None:
            with self._lock:
                self._put(held)
                self.document["untimed"].append(held["entry"]["id"])
                sealing.write(self.output, self.document, self.key)

    def file(self, said: Mapping[str, Any], seconds: float) -> None:
        """Put what came of an entry into the document."""
        with self._lock:
            self._put(said["evidence"])
            self.spent.append(said["evidence"]["seconds"])
            if said["samples"] is not None:
                self.document["samples"][said["evidence"]["samples_sha256"]] = said["samples"]
            sys.stdout.write(telling.printable(f"{telling.line(said['evidence'], seconds)}\n"))
            sys.stdout.flush()

    def spend(self, phase: str, seconds: float, label: str) -> None:
        """Take note of how long something took that no entry counts itself."""
        with self._lock:
            if phase == turns.ALONE:
                self.alone.append((seconds, label))
            else:
                self.spent.append({phase: seconds})

    def done(self, order: Mapping[str, Any], label: str, skipped: dict[str, Any] | None) -> None:
        """Write the document after an entry, and why it was not judged if it was not."""
        with self._lock:
            if skipped is not None:
                telling.tell(f"{label}: skipped: {skipped['reason']}")
                if skipped.get("log"):
                    telling.tell(str(skipped["log"]))
                self.spent.append(skipped.get("seconds", {}))
                self.document["skipped"].append({**skipped, "id": order["id"], "reason": skipped["reason"][:800]})
            sealing.write(self.output, self.document, self.key)

    def _put(self, made: dict[str, Any]) -> None:
        """Put evidence in the place of what there was of the entry, in the order of the bundle."""
        which = made["entry"]["id"]
        kept = {one["entry"]["id"]: one for one in self.document["evidence"]} | {which: made}
        self.document["evidence"] = [kept[one["id"]] for one in self.job["entries"] if one["id"] in kept]
        self.document["untimed"] = [one for one in self.document["untimed"] if one != which]

    def _summary(self, complete: bool) -> int:
        verdicts = [one["decision"]["verdict"] for one in self.document["evidence"]]
        accepted = verdicts.count("accepted")
        sys.stdout.write(telling.printable(telling.table(self.document["evidence"], self.document["skipped"])))
        sys.stdout.flush()
        telling.tell(telling.spent(self.spent, self.alone, time.monotonic() - self.began))
        telling.tell(f"{accepted} of {len(verdicts)} accepted, {len(self.document['skipped'])} skipped")
        if self.output.exists():
            telling.tell(f"next: kb accept {self.output.name}")
        if not complete or self.broken:
            telling.tell(f"not all is done: python {self.archive.name} --resume -o {self.asked.output}")
            return STOPPED
        return DONE if accepted == len(verdicts) else NOT_ACCEPTED


def _interrupted() -> None:
    raise OutOfTimeError
