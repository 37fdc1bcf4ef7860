"""What can be seen of a worker's processes from outside, through /proc."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

SETTLE_S, WINDOW_S, BUSY = 0.05, 0.15, 0.6
"""Grace after the last call, the window in which work is looked for, and the share of one core that counts as busy."""

_LOOKS = 30
_WINDOWS = 3
_PATIENCE_S = 6.0
_TORN_S = 1.0
"""A window that took longer than this was interrupted."""


def tree(root: int) -> list[int]:
    """Return a process and its descendants, as this host numbers them, parents first."""
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                todo += [int(child) for child in (task / "children").read_text(encoding="ascii").split()]
    return found


def living(pids: list[int]) -> list[int]:
    """Return those of the processes that are not merely waiting to be taken note of."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            if Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] not in "ZX":
                found.append(pid)
    return found


def resident_bytes(pids: list[int]) -> int:
    """Return the memory held by processes, shared memory included."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError):
            total += int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return total * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pids: list[int]) -> float:
    """Return the CPU time that processes have used."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def starved_seconds(pids: list[int]) -> float:
    """Return how long the threads of some processes wanted a core and got none, of the thread that waited longest."""
    longest = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - names alone
                with contextlib.suppress(OSError, IndexError, ValueError):
                    text = Path(f"/proc/{pid}/task/{task}/schedstat").read_text(encoding="ascii")
                    longest = max(longest, int(text.split()[1]))
    return longest / 1e9


def runnable_threads(pids: list[int]) -> int:
    """Return how many threads of some processes run, or would if a core were free."""
    count = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - names alone, many times a second
                with contextlib.suppress(OSError, IndexError):
                    text = Path(f"/proc/{pid}/task/{task}/stat").read_text(encoding="ascii")
                    count += text.rpartition(")")[2].split()[0] == "R"
    return count


def work_left(pids: Callable[[], list[int]], *, workers: int = 1) -> float | None:
    """Look for work of processes that should have nothing to do; takes 0.6 s where there is some.

    On a busy machine a thread that wants to run may not come to it in a whole window: so both count, the CPU time that
    was used and the time in which threads were ready to use some. Nor does what is soon done come to its end there: so
    as long as they were given less than three windows' worth of a core for each worker, they are looked at for longer,
    up to 6 s for each. A window that lasted longer than it should says how much was done in one of the right length.

    Args:
        pids: Names the processes, called anew for each window.
        workers: Into how many workers they belong, each of which may have something to bring to its end.

    Returns:
        Seconds of work in the last window of 0.15 s, None if the processes came to rest.
    """
    windows, given, over = 0, 0.0, time.monotonic() + workers * _PATIENCE_S
    while True:
        time.sleep(SETTLE_S)
        own = pids()
        before, ready, looks = cpu_seconds(own), 0, 0
        began = time.monotonic()
        until = began + WINDOW_S
        while looks < _LOOKS and time.monotonic() < until:
            ready += runnable_threads(own)
            looks += 1
            time.sleep(WINDOW_S / _LOOKS)
        used = cpu_seconds(own) - before
        lasted = time.monotonic() - began
        if lasted > _TORN_S and time.monotonic() < over:
            continue  # whoever looks was stopped meanwhile, and who is looked at as well: nothing was seen
        found = max(used * WINDOW_S / max(lasted, WINDOW_S), ready / max(looks, 1) * WINDOW_S)
        if found < BUSY * WINDOW_S:
            return None
        windows, given = windows + 1, given + used
        enough = workers * _WINDOWS * BUSY * WINDOW_S
        if windows >= _WINDOWS and (given >= enough or time.monotonic() > over):
            return found


def deleted_bytes(pids: list[int], *, device: int) -> int:
    """Return the disk space of files that processes hold open although their names are gone.

    Args:
        pids: The processes.
        device: Only files of this device (``st_dev``).
    """
    seen: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for one in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    facts = one.stat()
                    if facts.st_nlink == 0 and facts.st_dev == device:
                        seen[facts.st_ino] = facts.st_blocks * 512
    return sum(seen.values())


def thread_count(pids: list[int]) -> int:
    """Return how many threads processes have."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    return total


def patched_code(pids: list[int]) -> set[str]:
    """Name the files whose code is not in memory as it is on disk: pages that may be executed and were written to.

    A page that was written to is the process's own, and counts as anonymous. Whether it is dirty says nothing: a
    library that was built into a file system in memory, as Triton builds its launchers, is dirty as it is.
    """
    found: set[str] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            name = ""
            for line in Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8", errors="replace").splitlines():
                head = line.split(None, 5)
                if "-" in head[0] and not head[0].endswith(":"):
                    executable = len(head) == 6 and "x" in head[1] and head[5].startswith("/")
                    name = head[5] if executable else ""
                elif name and head[0] in ("Anonymous:", "Swap:") and head[1] != "0":
                    found.add(name)
    return found


def still(pid: int) -> bool:
    """Tell whether a process stands still, or is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] in "TtZX"
    except (OSError, IndexError):
        return True


def stop_pending(pid: int) -> bool:
    """Tell whether a process was told to stop and has not come to it yet."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        return any(
            int(line.split()[1], 16) >> (signal.SIGSTOP - 1) & 1
            for line in text.splitlines()
            if line.startswith(("SigPnd:", "ShdPnd:"))
        )
    except (OSError, IndexError, ValueError):
        return False


def send_signal(pids: list[int], which: signal.Signals) -> None:
    """Send a signal to each process that still exists."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, which)
