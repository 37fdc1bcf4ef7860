"""Enter the sandbox: what a worker does to itself before it touches a candidate.

Without root: Landlock, seccomp and resource limits are the base; user, network, PID, IPC and mount namespaces are a
plus where the kernel grants them. With root, the uid is dropped first. Everything is tried layer by layer, and
``verify`` then tries to break each one; what does not hold is never reported as active.
"""

import contextlib
import ctypes
import os
import resource
import secrets
import shutil
import signal
import socket
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kb.validators.runtime import landlock, seccomp

_UIDS = range(61184, 65520)
"""Uids that no account has (systemd's dynamic range): a worker gets its own, so that two cannot signal each other."""

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
    file_entries: int = 2048
    """Files and folders in the one writable folder."""
    open_files: int = 256
    threads: int = 512


def limits_for(device: str, *, memory_bytes: int) -> Limits:
    """Return the bounds for a device: a GPU's driver reserves, and its compilers write, much more."""
    if device == "cpu":
        return Limits(memory_bytes=memory_bytes)
    return Limits(
        memory_bytes=max(memory_bytes, 24 << 30), data_bytes=64 << 30, file_bytes=1 << 30, file_entries=20_000,
        open_files=1024, threads=1024,
    )  # fmt: skip


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
    system = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/localtime", "/etc/passwd")
    special = ("/proc", "/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm", "/etc/nsswitch.conf")
    devices = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
    roots = [Path(one) for one in (*system, *special, *devices)]
    for prefix in {sys.base_prefix, sys.prefix} - {"/usr", "/"}:
        roots += [Path(prefix) / one for one in ("bin", "include", "pyvenv.cfg", "lib", "lib64", "share")]
    sites = {Path(sysconfig.get_path(key)) for key in ("purelib", "platlib")}
    sites |= {Path(one) for one in sys.path if one.endswith(("site-packages", "dist-packages"))}
    hidden = {one.resolve() for site in sites if site.is_dir() for one in site.iterdir() if _of_kb(one)}
    found = [part for root in [*roots, *sorted(sites)] for part in _around(root, hidden)]
    return list(dict.fromkeys(found))


def gpu_paths() -> tuple[list[Path], list[Path]]:
    """Return what a worker on a GPU may further read, and what it may write: the driver's files and nodes.

    ``/proc`` must be writable or the driver does not start (error 304): it names its threads there. What else can be
    written there belongs to the worker itself.
    """
    read = ("/sys", "/usr/local/nvidia", "/usr/local/cuda", "/etc/alternatives", "/etc/ld.so.conf.d", "/opt/nvidia")
    # Compilers are started with their output thrown away, which opens /dev/null for writing.
    return [Path(one) for one in read], [Path("/proc"), Path("/dev/null"), *sorted(Path("/dev").glob("nvidia*"))]


def compilers() -> list[Path]:
    """Return the programs that may be started while a candidate is built: compilers, assemblers, linkers, a shell."""
    names = (
        "gcc", "cc", "g++", "c++", "clang", "clang++", "as", "ld", "ld.bfd", "ld.gold", "ld.lld", "ar", "strip", "nvcc",
        "ptxas", "cudafe++", "cicc", "fatbinary", "nvlink", "bin2c", "ninja", "sh", "dash", "rm", "ldconfig",
    )  # fmt: skip
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/cuda/bin", "/usr/bin", "/bin", "/sbin"])
    found = [Path(one) for name in names if (one := shutil.which(name, path=search))]
    folders = ["/usr/lib/gcc", "/usr/libexec/gcc", "/usr/local/cuda/bin", "/usr/local/cuda/nvvm/bin"]
    loaders = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/sbin/ldconfig.real"]
    found += [Path(one) for one in (*folders, *loaders)]
    for site in {Path(sysconfig.get_path(key)) for key in ("purelib", "platlib")}:
        found += [*site.glob("triton/backends/*/bin"), *site.glob("torch/bin/ptxas*")]
        found += [*site.glob("nvidia/*/bin"), *site.glob("nvidia/*/nvvm/bin")]
    return [one.resolve() for one in found if one.exists()]


def _of_kb(path: Path) -> bool:
    """Tell the judge's own files: a candidate has no use for them, nor for the entries beside them."""
    return path.name.lower().startswith(("kb", "kernel_kb", "__editable__"))


def _around(root: Path, hidden: set[Path]) -> list[Path]:
    """Return ``root``, or where something below is hidden, the parts of it that are not."""
    whole = root.resolve()
    if whole in hidden or not root.exists():
        return []
    if not any(one.is_relative_to(whole) for one in hidden):
        return [root]
    return [part for child in root.iterdir() for part in _around(child, hidden)]


def enter(
    *,
    write: list[Path],
    read: list[Path],
    limits: Limits,
    channel: socket.socket,
    device: str = "cpu",
    meet: Callable[[], None] | None = None,
    alone: bool = True,
) -> Layers:
    """Put this process into the sandbox; returns in the process that is inside.

    Args:
        write: Folders that may be written.
        read: Further files and folders that may be read.
        limits: Resource bounds.
        channel: Socket to the judge; the seccomp listener is passed over it.
        device: ``cpu``, or ``cuda`` to leave the driver of a GPU within reach and let compilers be started, which the
            judge then allows and forbids through the listener.
        meet: Called right before the system calls are sealed, to open connections in the network namespace that this
            process is in already; None for a worker that has no one to meet, and so no network at all.
        alone: False for a worker that a tool watches from outside: it keeps its namespaces and its uid, without
            capabilities.

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
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    if alone:
        _go_apart(library, layers, write, read, limits=limits, loadable=device != "cpu", network=meet is None)
    else:
        _stay_in_sight(library, layers)
    _limit(limits, layers)
    more_read, more_write = ([], []) if device == "cpu" else gpu_paths()
    version = landlock.restrict(
        read=[*toolchain_paths(), *read, *more_read],
        write=[*write, *more_write],
        execute=None if device == "cpu" else compilers(),
        tcp=meet is not None,
    )
    layers.note("landlock", f"ABI {version}")
    if meet is not None:
        meet()
    mode, listener = seccomp.install(threads=meet is not None or not alone)
    layers.note("seccomp", mode)
    if listener is not None:
        socket.send_fds(channel, [b"L"], [listener])
        os.close(listener)
    else:
        channel.send(b"N")
    return layers


def _go_apart(
    library: ctypes.CDLL,
    layers: Layers,
    write: list[Path],
    read: list[Path],
    *,
    limits: Limits,
    loadable: bool,
    network: bool,
) -> None:
    """Leave the host's namespaces, files and uid; see ``_namespaces``, ``_mounts`` and ``_drop_privileges``."""
    uid = secrets.choice(_UIDS) if os.geteuid() == 0 else 0
    _namespaces(library, layers, network=network)
    if layers.active.get("mount") == "own namespace":
        _mounts(library, layers, write, uid=uid, limits=limits, loadable=loadable)
    layers.active.setdefault("cache", "absent: bounded from outside only")
    _drop_privileges(library, layers, [*write, *read], uid)


def _stay_in_sight(library: ctypes.CDLL, layers: Layers) -> None:
    """Keep namespaces and uid, for a tool that watches from outside, but no capability."""
    layers.note("namespaces", "absent: a tool watches this worker from outside")
    layers.active.setdefault("cache", "absent: bounded from outside only")
    _bound_capabilities(library)
    _drop_capabilities(library, keep=0)
    layers.note("uid", f"kept ({os.getuid()}), without capabilities")


def _namespaces(library: ctypes.CDLL, layers: Layers, *, network: bool) -> None:
    """Leave the host's namespaces as far as the kernel allows, then fork, so that a PID namespace takes hold."""
    uid, gid = os.getuid(), os.getgid()
    if uid != 0:
        if library.unshare(_NEWUSER) != 0:
            layers.note("user_namespace", f"absent: {os.strerror(ctypes.get_errno())}")
        else:
            with contextlib.suppress(OSError):
                Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
                Path("/proc/self/uid_map").write_text(f"0 {uid} 1", encoding="ascii")
                Path("/proc/self/gid_map").write_text(f"0 {gid} 1", encoding="ascii")
            layers.note("user_namespace", "own namespace" if os.getuid() == 0 else "absent: no uid map")
    named = (("network", _NEWNET), ("ipc", _NEWIPC), ("uts", _NEWUTS), ("mount", _NEWNS), ("pid", _NEWPID))
    if not network:
        layers.note("network", "that of its job, loopback only")
    for name, flag in named if network else named[1:]:
        done = library.unshare(flag) == 0
        layers.note(name, "own namespace" if done else f"absent: {os.strerror(ctypes.get_errno())}")
    if layers.active["pid"] == "own namespace":
        _become_first(library)


def _mounts(
    library: ctypes.CDLL, layers: Layers, write: list[Path], *, uid: int, limits: Limits, loadable: bool
) -> None:
    """Give the worker its own view of processes, and a bounded file system in memory for what it writes.

    Where compilers write their libraries, these must be loadable; that nothing there is started is Landlock's part.
    """
    library.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    if layers.active["pid"] == "own namespace":
        mounted = library.mount(b"proc", b"/proc", b"proc", flags, None) == 0
        layers.note("proc", "own" if mounted else f"absent: {os.strerror(ctypes.get_errno())}")
    # One page and one entry more than allowed, so that going over the bound can be seen.
    bounds = f"size={limits.file_bytes + 65536},nr_inodes={limits.file_entries + 64},mode=700,uid={uid},gid={uid}"
    for folder in write:
        own = flags & ~_MS_NOEXEC if loadable else flags
        mounted = library.mount(b"tmpfs", bytes(folder), b"tmpfs", own, bounds.encode()) == 0
        layers.note("cache", "tmpfs" if mounted else f"absent: {os.strerror(ctypes.get_errno())}")


def _become_first(library: ctypes.CDLL) -> None:
    """Fork into the new PID namespace; the outer process only waits and passes the end on."""
    child = os.fork()
    if child == 0:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        return
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # entering a user namespace has cleared it
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(128 - code if code < 0 else code)


def _drop_privileges(library: ctypes.CDLL, layers: Layers, folders: list[Path], uid: int) -> None:
    if layers.active.get("user_namespace") == "own namespace" or os.geteuid() != 0:
        inside = layers.active.get("user_namespace") == "own namespace"
        layers.note("uid", "mapped to the caller's own" if inside else f"unprivileged ({os.getuid()})")
        _drop_capabilities(library, keep=0)
    else:
        os.chown(folders[0], uid, uid)
        # An interpreter below a private home must stay readable: one capability is kept for reading then, and Landlock
        # decides what; without it the worker could not import torch.
        keep = 0 if _public([*folders, Path(sys.prefix), Path(sys.base_prefix)]) else 1 << _DAC_READ_SEARCH
        library.prctl(_PR_SET_KEEPCAPS, 1 if keep else 0, 0, 0, 0)
        _bound_capabilities(library)
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        _drop_capabilities(library, keep=keep)
        layers.note("uid", "dropped to one of its own" + ("; one capability, to read" if keep else ""))
    library.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _public(paths: list[Path]) -> bool:
    """Tell whether anybody may enter every folder on the way to each of the paths."""
    return all(parent.stat().st_mode & 0o001 for path in paths for parent in path.resolve().parents)


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
    bounds = [
        (resource.RLIMIT_DATA, limits.data_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 64 << 20),
    ]
    if layers.active["uid"].startswith(("dropped", "mapped")):  # otherwise all of the caller's threads would count
        bounds.append((resource.RLIMIT_NPROC, limits.threads))
    for which, value in bounds:
        hard = resource.getrlimit(which)[1]
        bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (bounded, bounded))
    layers.note("rlimits", f"data {limits.data_bytes >> 20} MiB, file {limits.file_bytes >> 20} MiB")
