"""The judge's handle on one candidate worker: start, talk, watch from outside, end."""

import contextlib
import os
import secrets
import select
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kb.validators.runtime import accelerator, forking, halting, processes, replies, watch, wire, workplace
from kb.validators.runtime.arena import Arena
from kb.validators.runtime.errors import JudgeError, WorkerEndedError
from kb.validators.runtime.launching import Launch, Output, Spawn
from kb.validators.runtime.sandbox import Limits
from kb.validators.runtime.starting import boot, fork, toolchain_environment
from kb.validators.runtime.watch import Watcher
from kb.validators.runtime.workplace import Workplace

_POLL_S = 0.05
_CALM_S = 2.0
_PATIENCE = 10
"""Times its limit that a worker may take at the most if it wanted a core and got none."""


class Worker:
    """One sandboxed process that may run one candidate."""

    def __init__(
        self,
        source: bytes,
        *,
        place: Workplace,
        arena: Arena,
        limits: Limits,
        triton: bool,
        function: str = "run",
        device: str = "cpu",
        module: str = "kb.validators.runtime.stub",
        read: Sequence[Path] = (),
        spawn: Spawn | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self.limits = limits
        self.device = device
        self._before_seal: dict[str, tuple[int, int]] = {}
        self.blocked: Counter[str] = Counter()
        self.layers: dict[str, Any] = {}
        self._private, self.folder, self.cache = (place.folder(name) for name in ("private", "candidate", "cache"))
        self._private.joinpath("canary").write_text("not for candidates", encoding="ascii")
        self.folder.chmod(0o755)
        (self.folder / "candidate.py").write_bytes(source)
        (self.folder / "candidate.py").chmod(0o444)
        self._device = self.cache.stat().st_dev
        self._killed_for: str | None = None
        self._processes = 2
        self._patched: set[str] = set()
        self._watcher: Watcher | None = None
        self._done = threading.Event()
        self._calm_until = 0.0
        self.stands_still = False
        """Whether all its processes were seen to be stopped: nothing of it can grow then, and nobody looks."""
        self._forgiven = 0.0
        """Seconds without a core that have prolonged a limit already."""
        if spawn is None:
            # A driver must not be opened before a fork, and compilers want variables of their own from the start.
            start = fork if device == accelerator.CPU else boot
            spawn = lambda launch: start(module, launch=launch)  # noqa: E731 - the module is all it adds
        self._start(arena, spawn)
        order = {"function": function, "triton": triton, "read": [str(one) for one in read], **(more or {})}
        with contextlib.suppress(wire.WireError):  # a worker that is gone already shows when it should be ready
            wire.send(self.channel, self._order() | order)
        self._guardian = threading.Thread(target=self._guard, name="kb-guard", daemon=True)
        self._guardian.start()

    def _start(self, arena: Arena, spawn: Spawn) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.channel = ours
        read_end, write_end = os.pipe()
        self._output = Output(read_end)
        try:
            self._process = spawn(
                Launch((theirs.fileno(), arena.descriptor), write_end, self._environment(), self.folder)
            )
        except (OSError, JudgeError):
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(write_end)

    def _order(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "file": "candidate.py",
            "cache": str(self.cache),
            "canary": str(self._private / "canary"),
            "judge_pid": os.getpid(),
            "device": self.device.partition(":")[0],
            "limits": vars(self.limits),
        }

    def _environment(self) -> dict[str, str]:
        cache = str(self.cache)
        own = {"HOME": cache, "TMPDIR": cache, "TRITON_CACHE_DIR": cache, "XDG_CACHE_HOME": cache}
        return toolchain_environment() | accelerator.environment(self.device, cache) | own

    def wait_ready(self, *, limit_s: float) -> dict[str, Any]:
        """Wait until the worker sits in a verified sandbox.

        Returns:
            Active and verified layers.

        Raises:
            JudgeError: The sandbox cannot be had here.
        """
        try:
            if not self._readable(limit_s):
                raise TimeoutError(f"nothing within {limit_s:g} s")
            mark, descriptors, _, _ = socket.recv_fds(self.channel, 1, 4)
            if mark == b"L" and descriptors:
                self._watcher = Watcher(descriptors[0])
            self._readable(limit_s)
            message = wire.receive(self.channel, limit_s=limit_s)
        except (wire.WireError, OSError, TimeoutError) as error:
            self.end()
            tail = self.output()[-600:]
            raise JudgeError(
                f"the worker did not reach its sandbox: {error}; {tail.strip()}",
                "the judge needs Linux with Landlock and seccomp, torch, and some free memory: kb doctor",
            ) from error
        if message.get("active", {}).get("pid") == "own namespace" and len(self.pids()) < 2:
            self.end()
            raise JudgeError("the worker's processes cannot be seen from outside", "mount /proc with task children")
        self.layers = message
        if self.device != accelerator.CPU:
            self._open_device()
        self._processes = len(self.pids())
        self._patched = processes.patched_code(self.pids())
        self.take_blocked()
        self.blocked.clear()
        return message

    def _open_device(self) -> None:
        """Have the worker open its GPU, while its driver may look for a daemon; no candidate is loaded yet."""
        if self._watcher is None:
            raise JudgeError("this kernel has no seccomp user notification", "a GPU is judged on Linux 5.5 or later")
        self._watcher.allow(watch.OPENING)
        try:
            self.ask({"op": "device"}, limit_s=120)
        except WorkerEndedError as error:
            self.end()
            raise JudgeError(
                f"the worker cannot open {self.device}: {self.output()[-400:].strip()}", "nvidia-smi; kb doctor"
            ) from error
        finally:
            self._watcher.allow(frozenset())

    def ask(self, message: dict[str, Any], *, limit_s: float) -> dict[str, Any]:
        """Send one message and wait for its reply.

        Raises:
            WorkerEndedError: Timed out, ended, exceeded a limit or broke the protocol.
        """
        return self.collect(self.post(message, limit_s=limit_s), limit_s=limit_s)

    def post(self, message: dict[str, Any], *, limit_s: float) -> str:
        """Send one message whose replies are collected later; returns the ticket that they bear.

        Raises:
            WorkerEndedError: As ``ask``.
        """
        # A reply belongs to a question that nobody could foresee, so that none can be sent ahead of it.
        ticket = secrets.token_hex(8)
        try:
            if select.select([self.channel], [], [], 0)[0] and self._process.poll() is None:
                self._peek()
            self.channel.settimeout(limit_s)
            wire.send(self.channel, message | {"ticket": ticket})
        except wire.WireError as error:
            self.take_blocked()
            raise self._ended(error) from error
        return ticket

    def collect(self, ticket: str, *, limit_s: float) -> dict[str, Any]:
        """Wait for one reply to a message that was posted.

        Raises:
            WorkerEndedError: As ``ask``.
        """
        try:
            self._wait(limit_s)
            reply = wire.receive(self.channel, limit_s=limit_s)
            if reply.get("ticket") != ticket:
                raise wire.WireError("malformed", "a reply to no question")
            replies.failure(reply)
            return reply
        except wire.WireError as error:
            raise self._ended(error) from error
        except replies.ForgedReplyError as error:
            raise WorkerEndedError("forged_protocol", str(error)) from error
        finally:
            self.take_blocked()

    def _wait(self, limit_s: float) -> None:
        """Wait until there is something to read; on a busy machine longer, by as long as no core was to be had.

        Raises:
            WireError: The limit has passed.
        """
        left, most = limit_s, _PATIENCE * limit_s
        while not self._readable(left):
            starved = processes.starved_seconds(self.pids())
            left, self._forgiven = min(starved - self._forgiven, most), starved
            most -= left
            if left <= 0:
                raise wire.WireError("timed_out", f"no answer within {limit_s:g} s")

    def _readable(self, limit_s: float) -> bool:
        """Wait until there is something to read; returns False where there is nothing within the limit."""
        return any(select.select([self.channel], [], [], piece)[0] for piece in halting.slices(limit_s))

    def calm(self, seconds: float) -> None:
        """Leave off watching memory and disk for a moment in which something is timed; 0 goes on at once."""
        self._calm_until = time.monotonic() + min(seconds, _CALM_S)

    def _peek(self) -> None:
        """Tell a message that nobody asked for from a channel that was closed."""
        if self.channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
            raise wire.WireError("malformed", "a message that nobody asked for")

    def _ended(self, error: wire.WireError) -> WorkerEndedError:
        if limit := self._exceeded():
            return WorkerEndedError(limit)
        if error.kind == "timed_out":
            return WorkerEndedError("timed_out")
        if error.kind == "malformed":
            return WorkerEndedError("forged_protocol", str(error))
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return WorkerEndedError("forged_protocol", "the channel was closed by a living process")
        if limit := self._exceeded():
            return WorkerEndedError(limit)
        if isinstance(self._process, forking.Forked) and self._process.lost:
            raise JudgeError("the nursery of the workers is gone", "free some memory: kb doctor") from error
        if code == 0:
            return WorkerEndedError("exited", "with code 0; success is valid bytes, not an exit code")
        number = -code if code < 0 else code - 128
        name = signal.Signals(number).name if number in set(signal.Signals) else f"code {code}"
        if name == "SIGSYS":
            return WorkerEndedError("forbidden_call", "a system call of another architecture")
        return WorkerEndedError("crashed", f"the process ended: {name}")

    def _exceeded(self) -> str | None:
        """Return the limit for which the guard ended the worker."""
        return self._killed_for

    def _guard(self) -> None:
        """Watch memory and disk for as long as the worker lives, whether it was asked something or not."""
        turn = 0
        while not self._done.wait(_POLL_S):
            if self.stands_still or time.monotonic() < self._calm_until:
                continue
            turn += 1
            pids = self.pids()
            if processes.resident_bytes(pids) > self.limits.memory_bytes:
                self._killed_for = "memory_limit"
            elif turn % 3 == 0 and self._too_much_on_disk(pids):
                self._killed_for = "disk_limit"
            if self._killed_for is not None:
                self._kill()
                return

    def _too_much_on_disk(self, pids: list[int]) -> bool:
        most_bytes, most_entries = self.limits.file_bytes, self.limits.file_entries
        used, entries = workplace.usage(self.seen_cache(), most_bytes=most_bytes, most_entries=most_entries)
        if used > most_bytes or entries > most_entries:
            return True
        return used + processes.deleted_bytes(pids, device=self._device) > most_bytes

    def seen_cache(self) -> Path:
        """Return the worker's one writable folder as it can be reached from here."""
        if self.layers.get("active", {}).get("cache", "").startswith("tmpfs"):
            # The first process inside; later ones are compilers that may be gone at any moment.
            return Path(f"/proc/{(self.pids() * 2)[1]}/root{self.cache}")
        return self.cache

    def pids(self) -> list[int]:
        """Return the worker's processes, as this host numbers them."""
        return processes.tree(self._process.pid)

    def cpu_seconds(self) -> float:
        """Return the CPU time that the worker's processes have used."""
        return processes.cpu_seconds(self.pids())

    def pause(self, *, stopped: bool) -> None:
        """Stop the worker's processes, or let them go on."""
        processes.send_signal(self.pids()[1:] or self.pids(), signal.SIGSTOP if stopped else signal.SIGCONT)

    def open_build(self) -> None:
        """Let compilers be started from now on."""
        if self._watcher is not None:
            self._watcher.allow(watch.BUILD)

    def close_build(self, *, forgive: frozenset[str]) -> None:
        """Let no process be started any more, and remember which files the build left.

        Args:
            forgive: Refused calls that do not count if only the build made them.

        Raises:
            WorkerEndedError: A process that the build started still runs.
        """
        if self._watcher is not None:
            self._watcher.allow(frozenset())
        deadline = time.monotonic() + 2
        while len(processes.living(self.pids())) > self._processes and time.monotonic() < deadline:
            time.sleep(0.02)
        if len(processes.living(self.pids())) > self._processes:
            raise WorkerEndedError("forbidden_call", "a process that the build started still runs")
        self.take_blocked()
        for name in forgive & set(self.blocked):
            del self.blocked[name]
        self._before_seal = workplace.states_below(self.seen_cache())

    def threads(self) -> int:
        """Return how many threads the worker has."""
        return processes.thread_count(self.pids())

    def patched(self) -> list[str]:
        """Name the libraries whose code was overwritten in memory since the worker was ready, as seen from outside."""
        return sorted({Path(one).name for one in processes.patched_code(self.pids()) - self._patched})

    def take_blocked(self) -> None:
        """Add the system calls refused since the last time to ``blocked``."""
        if self._watcher is not None:
            self.blocked.update(self._watcher.take())

    def files_left(self) -> list[str]:
        """Name the files in the worker's one writable folder, but for what the build left there, unless it changed."""
        if not self._before_seal:
            return workplace.files_below(self.seen_cache())
        now = workplace.states_below(self.seen_cache())
        return sorted(name for name, state in now.items() if self._before_seal.get(name) != state)

    def output(self) -> str:
        """Return the last of what the candidate printed; foreign text, not yet escaped."""
        return self._output.text()

    def _kill(self) -> None:
        # The outer process, if there is one, waits for the inner ones and ends by itself: no zombie is left to others.
        pids = self.pids()
        processes.send_signal(pids[1:] or pids, signal.SIGKILL)

    def wait(self, *, limit_s: float) -> None:
        """Give a worker that was told goodbye the time to end by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=limit_s)

    def stop(self) -> None:
        """End the worker's processes, even while another thread asks it something: that one hears of the end."""
        self._done.set()
        deadline = time.monotonic() + 5
        # Once it has ended its number may be another's.
        while self._process.poll() is None and time.monotonic() < deadline:
            self._kill()
            time.sleep(0.005)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(timeout=5)

    def end(self) -> None:
        """End the worker and all that it started, and let go of it; may be called again."""
        self.stop()
        self.channel.close()
        self._guardian.join(timeout=5)
        if isinstance(self._process, forking.Forked):  # nobody looks at its processes any more
            self._process.release()
        self._output.close()
        if self._watcher is not None:
            self.take_blocked()
            self._watcher.close()
