"""Enter the sandbox: what a worker does to itself before it touches a candidate.

Without root: Landlock, seccomp and resource limits are the base; user, network, PID, IPC and mount namespaces are a
plus where the kernel grants them. With root, the uid is dropped first. Everything is tried layer by layer, and
``verify`` then tries to break each one; what does not hold is never reported as active.
"""

import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

from kb.validators.runtime import landlock, seccomp

NOBODY = 65534
"""Unprivileged uid and gid."""

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 8, 24, 38
_MS_REC, _MS_PRIVATE, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 0x4000, 0x40000, 2, 4, 8
_DAC_READ_SEARCH = 2


@dataclass(frozen=True)
class Limits:
    """Bounds on what a worker may use."""

    memory_bytes: int = 4 << 30
    """Resident memory, shared included: watched from outside. The kernel's own bound lies above it."""
    data_bytes: int = 12 << 30
    """Private address space with data; a worker that reserves without touching is bounded here."""
    file_bytes: int = 64 << 20
    open_files: int = 256
    threads: int = 512


@dataclass
class Layers:
    """What was asked for and what came of it, layer by layer."""

    active: dict[str, str] = field(default_factory=dict)
    """Layer to how it is active, or ``absent: reason``."""
    verified: dict[str, bool] = field(default_factory=dict)
    """Layer to whether an attempt to break it failed."""

    def note(self, layer: str, how: str) -> None:
        """Write down one layer."""
        self.active[layer] = how


def toolchain_paths() -> list[Path]:
    """Return what a candidate may read: the interpreter, its packages but kb, and the system's libraries."""
    found = [Path(p) for p in ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/localtime")]
    found += [Path(p) for p in ("/proc", "/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm", "/dev/null")]
    found += [Path(p) for p in ("/dev/zero", "/dev/urandom", "/dev/random", "/etc/passwd", "/etc/nsswitch.conf")]
    for prefix in {sys.base_prefix, sys.prefix}:
        base = Path(prefix)
        if base in (Path("/usr"), Path("/")):
            continue
        found += [base / "bin", base / "include", base / "pyvenv.cfg", base / "lib64", base / "share"]
        found += _without_packages(base / "lib")
    for key in ("purelib", "platlib"):
        found += _packages(Path(sysconfig.get_path(key)))
    for extra in sys.path:
        if extra.endswith(("site-packages", "dist-packages")):
            found += _packages(Path(extra))
    return list(dict.fromkeys(found))


def _without_packages(library: Path) -> list[Path]:
    """Return the parts of ``lib`` of an interpreter, its site-packages left out."""
    if not library.is_dir():
        return []
    found: list[Path] = []
    for child in library.iterdir():
        if child.is_dir() and child.name.startswith("python"):
            found += [one for one in child.iterdir() if one.name not in ("site-packages", "dist-packages")]
        else:
            found.append(child)
    return found


def _packages(site: Path) -> list[Path]:
    """Return the installed packages of one folder, kb left out: a candidate has no use for the judge's own files."""
    if not site.is_dir():
        return []
    return [one for one in site.iterdir() if not one.name.lower().startswith(("kb", "kernel_kb", "__editable__"))]


def enter(*, write: list[Path], read: list[Path], limits: Limits, channel: socket.socket) -> Layers:
    """Put this process into the sandbox; returns in the process that is inside.

    Args:
        write: Folders that may be written.
        read: Further files and folders that may be read.
        limits: Resource bounds.
        channel: Socket to the judge; the seccomp listener is passed over it.

    Returns:
        The layers, not yet verified.

    Raises:
        OSError: Landlock or seccomp, the base, cannot be had. Nothing may run then.
    """
    layers = Layers()
    library = seccomp.libc()
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    with contextlib.suppress(OSError):
        os.setsid()
    _namespaces(library, layers)
    _drop_privileges(library, layers, write)
    _limit(limits, layers)
    version = landlock.restrict(read=[*toolchain_paths(), *read], write=write)
    layers.note("landlock", f"ABI {version}")
    mode, listener = seccomp.install()
    layers.note("seccomp", mode)
    if listener is not None:
        socket.send_fds(channel, [b"L"], [listener])
        os.close(listener)
    else:
        channel.send(b"N")
    return layers


def _namespaces(library: ctypes.CDLL, layers: Layers) -> None:
    """Leave the host's namespaces as far as the kernel allows, then fork, so that a PID namespace takes hold."""
    uid, gid = os.getuid(), os.getgid()
    if uid != 0:
        if library.unshare(_NEWUSER) != 0:
            layers.note("namespaces", f"absent: {os.strerror(ctypes.get_errno())}")
            return
        with contextlib.suppress(OSError):
            Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
            Path("/proc/self/uid_map").write_text(f"0 {uid} 1", encoding="ascii")
            Path("/proc/self/gid_map").write_text(f"0 {gid} 1", encoding="ascii")
        layers.note("user_namespace", "own")
    named = (("network", _NEWNET), ("ipc", _NEWIPC), ("uts", _NEWUTS), ("mount", _NEWNS), ("pid", _NEWPID))
    for name, flag in named:
        done = library.unshare(flag) == 0
        layers.note(name, "own namespace" if done else f"absent: {os.strerror(ctypes.get_errno())}")
    if layers.active["pid"] == "own namespace":
        _become_first(library)
        if layers.active["mount"] == "own namespace":
            library.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
            flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
            mounted = library.mount(b"proc", b"/proc", b"proc", flags, None) == 0
            layers.note("proc", "own" if mounted else f"absent: {os.strerror(ctypes.get_errno())}")


def _become_first(library: ctypes.CDLL) -> None:
    """Fork into the new PID namespace; the outer process only waits and passes the end on."""
    child = os.fork()
    if child == 0:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        return
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(128 - code if code < 0 else code)


def _drop_privileges(library: ctypes.CDLL, layers: Layers, write: list[Path]) -> None:
    if os.geteuid() != 0 or "user_namespace" in layers.active:
        layers.note("uid", f"unprivileged ({os.getuid()})" if os.geteuid() != 0 else "mapped to the caller's own")
        if "user_namespace" in layers.active:
            _drop_capabilities(library, keep=0)
        library.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
        return
    for folder in write:
        os.chown(folder, NOBODY, NOBODY)
    # An interpreter below a private home must stay readable: one capability is kept for reading, and Landlock decides
    # what; without it the worker could not import torch.
    library.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    _bound_capabilities(library)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    _drop_capabilities(library, keep=1 << _DAC_READ_SEARCH)
    library.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    layers.note("uid", f"dropped to {NOBODY}; one capability, to read")


def _bound_capabilities(library: ctypes.CDLL) -> None:
    for capability in range(64):
        if library.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilityData(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def _drop_capabilities(library: ctypes.CDLL, *, keep: int) -> None:
    header = _CapabilityHeader(0x20080522, 0)
    data = (_CapabilityData * 2)(_CapabilityData(keep, keep, 0), _CapabilityData(0, 0, 0))
    if library.capset(ctypes.byref(header), data) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _limit(limits: Limits, layers: Layers) -> None:
    bounds = (
        (resource.RLIMIT_DATA, limits.data_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 64 << 20),
    )
    for which, value in bounds:
        hard = resource.getrlimit(which)[1]
        bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (bounded, bounded))
    layers.note("rlimits", f"data {limits.memory_bytes >> 20} MiB, file {limits.file_bytes >> 20} MiB")
