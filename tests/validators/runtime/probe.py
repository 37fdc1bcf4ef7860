"""A candidate that tries to get out and says what came of each attempt, in the text of an error."""

import ctypes
import json
import mmap
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

LIBRARY = ctypes.CDLL(None, use_errno=True)
FOUND: dict[str, object] = {}


def call(name: str, number: int, *arguments: object) -> None:
    """Make one raw system call and note its error number, 0 for success."""
    ctypes.set_errno(0)
    result = LIBRARY.syscall(ctypes.c_long(number), *arguments)
    FOUND[name] = ctypes.get_errno() if result == -1 else 0


def attempt(name: str, action: Callable[[], object]) -> None:
    """Do something and note its error number, 0 for success."""
    try:
        action()
    except OSError as error:
        FOUND[name] = error.errno
    else:
        FOUND[name] = 0


def calls() -> None:
    """System calls by number, for x86-64."""
    null = ctypes.c_void_p(None)
    # An address whose low half is zero, which a filter that looks at one half only takes for a null pointer.
    LIBRARY.mmap.restype = ctypes.c_void_p
    LIBRARY.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    far = LIBRARY.mmap(0x700000000, 4096, 3, 0x32, -1, 0)
    call("prlimit64", 302, 0, 7, ctypes.c_void_p(far), null)
    call("clone3", 435, null, ctypes.c_size_t(88))
    call("vfork", 58)
    call("clone", 56, ctypes.c_ulong(17), null, null, null, null)
    call("io_uring_setup", 425, 4, null)
    call("process_vm_readv", 310, 1, null, ctypes.c_ulong(0), null, ctypes.c_ulong(0), ctypes.c_ulong(0))
    call("pidfd_open", 434, os.getpid(), 0)
    call("ptrace", 101, 0, 0, null, null)
    call("rt_sigqueueinfo", 129, 1, 9, null)
    call("prctl parent death", 157, 1, 0, 0, 0, 0)
    call("prctl dumpable", 157, 4, 0, 0, 0, 0)
    call("fcntl owner", 72, 0, 8, 1)
    call("ioctl owner", 16, 0, ctypes.c_ulong(0x8901), null)
    call("fchmodat2", 452, -100, b"/tmp", 0o777, 0)
    call("memfd_create", 319, b"x", 0)
    call("inotify_init1", 294, 0)
    call("open_by_handle_at", 304, -100, null, 0)
    call("unshare", 272, 0x10000000)
    call("kill init", 62, 1 if os.getpid() != 1 else 2, 9)
    call("tgkill", 234, 2, 2, 9)
    call("seccomp", 317, 1, 0, null)


def files() -> None:
    """Ways around a file system that may only be read."""
    own, cache = Path(__file__), Path(os.environ["TMPDIR"])
    attempt("write own source", lambda: own.write_text("x"))
    attempt("truncate own source", lambda: os.truncate(own, 0))
    attempt("rename own source", lambda: own.rename(cache / "moved"))
    attempt("hard link own source", lambda: (cache / "linked").hardlink_to(own))
    attempt("hard link a library", lambda: (cache / "linked").hardlink_to("/usr/bin/env"))
    attempt("write through a symlink", lambda: write_through(cache, own))
    attempt("write own memory file", lambda: Path("/proc/self/mem").open("r+b").close())
    if os.getppid() != 0:  # 0: the parent is in another namespace and cannot even be named
        attempt("memory of the parent", lambda: Path(f"/proc/{os.getppid()}/mem").open("rb").close())
    attempt("list the judge's folder", lambda: list(own.parent.parent.iterdir()))
    attempt("list the home", lambda: list(Path("/root").iterdir()))
    attempt("execute", lambda: os.execv("/usr/bin/env", ["env"]))  # noqa: S606
    attempt("abstract socket", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).bind("\0kb"))
    attempt("signal to all", lambda: os.kill(-1, signal.SIGCONT))
    attempt("device", lambda: Path("/dev/mem").open("rb").close())
    attempt("executable memory from a file", lambda: mmap.mmap(os.open("/dev/zero", os.O_RDWR), 4096))


def write_through(cache: Path, target: Path) -> None:
    (cache / "symlink").symlink_to(target)
    try:
        (cache / "symlink").write_text("x")
    finally:
        (cache / "symlink").unlink()


def run(*_arguments: object) -> None:
    """Report everything."""
    calls()
    files()
    FOUND["descriptors"] = sorted(one.name for one in Path("/proc/self/fd").iterdir())
    FOUND["environment"] = sorted(os.environ)
    FOUND["uid"] = [os.getuid(), os.geteuid(), len(os.getgroups())]
    FOUND["capabilities"] = next(
        line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff")
    )
    raise RuntimeError(json.dumps(FOUND))
