"""A seccomp filter through ctypes: what a candidate must not call, reported to the judge where the kernel can.

``connect``, ``fork`` and the like answer EPERM. Where the kernel has user notification, each attempt reaches the
judge as a fact before it is refused, so that a candidate that only tried is known to have tried.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Sequence

from kb.validators.runtime import syscalls

_RET_ALLOW, _RET_ERRNO, _RET_NOTIFY, _RET_KILL = 0x7FFF0000, 0x00050000, 0x7FC00000, 0x80000000
_MODE_FILTER, _FLAG_NEW_LISTENER, _FLAG_TSYNC, _FLAG_TSYNC_ESRCH = 1, 1 << 3, 1, 1 << 4
_LOAD, _JUMP_EQUAL, _JUMP_SET, _JUMP_GE, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_CLONE_THREAD = 0x00010000
_PR_SET_NO_NEW_PRIVS = 38
_REFUSED_VALUES = (
    # prctl: parent-death signal, dumpable, own filters, Yama's tracer.
    ("prctl", 0, (1, 4, 22, 0x59616D61)),
    # fcntl: have the kernel send signals to another process (F_SETOWN, F_SETSIG, F_SETOWN_EX, F_NOTIFY).
    ("fcntl", 1, (8, 10, 15, 1026)),
    # ioctl: the same for sockets (FIOSETOWN, SIOCSPGRP), and typing into a terminal (TIOCSTI, TIOCLINUX).
    ("ioctl", 1, (0x8901, 0x8902, 0x5412, 0x541C)),
)
"""System call, argument and the values of it that are refused."""
_X32 = 0x40000000

Instruction = tuple[int, int, int, int]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def libc() -> ctypes.CDLL:
    """Return the C library, with errno kept: the one this process has, so that no program is started to find it."""
    return ctypes.CDLL(None, use_errno=True)


def _argument(index: int) -> int:
    """Offset of the low half of an argument in ``struct seccomp_data`` on a little-endian machine."""
    return 16 + 8 * index


def program(refuse: int, *, own_pid: int, allow_exec: bool = False) -> list[Instruction]:
    """Build the filter.

    Args:
        refuse: The seccomp return value for what is refused.
        own_pid: Signals to this process stay possible.
        allow_exec: True for a build step, which has to start compilers.

    Returns:
        BPF instructions (code, jump if true, jump if false, k).
    """
    here = syscalls.machine()
    body: list[Instruction] = [
        (_LOAD, 0, 0, 4),
        (_JUMP_EQUAL, 1, 0, syscalls.AUDIT_ARCH[here]),
        (_RETURN, 0, 0, _RET_KILL),
        (_LOAD, 0, 0, 0),
    ]
    if here == "x86_64":
        body += [(_JUMP_GE, 0, 1, _X32), (_RETURN, 0, 0, _RET_KILL)]
    body += [(_JUMP_EQUAL, 0, 1, syscalls.CLONE3), (_RETURN, 0, 0, _RET_ERRNO | errno.ENOSYS)]
    for name, number in syscalls.blocked().items():
        if allow_exec and name in ("fork", "vfork", "execve", "execveat"):
            continue
        body += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, refuse)]
    if not allow_exec:
        body += [
            (_JUMP_EQUAL, 0, 4, syscalls.CLONE[here]),
            (_LOAD, 0, 0, _argument(0)),
            (_JUMP_SET, 1, 0, _CLONE_THREAD),
            (_RETURN, 0, 0, refuse),
            (_RETURN, 0, 0, _RET_ALLOW),
        ]
    return [*body, *_by_argument(here, refuse, own_pid), (_RETURN, 0, 0, _RET_ALLOW)]


def _by_argument(here: str, refuse: int, own_pid: int) -> list[Instruction]:
    """Build the part that looks at arguments."""
    body: list[Instruction] = []
    for number in (syscalls.KILL[here], syscalls.TGKILL[here]):
        body += [
            (_JUMP_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, _argument(0)),
            (_JUMP_EQUAL, 1, 0, own_pid),
            (_RETURN, 0, 0, refuse),
            (_RETURN, 0, 0, _RET_ALLOW),
        ]
    numbers = {"prctl": syscalls.PRCTL[here], "fcntl": syscalls.FCNTL[here], "ioctl": syscalls.IOCTL[here]}
    for name, index, values in _REFUSED_VALUES:
        left = len(values)
        body += [(_JUMP_EQUAL, 0, left + 3, numbers[name]), (_LOAD, 0, 0, _argument(index))]
        body += [(_JUMP_EQUAL, left - place, 0, value) for place, value in enumerate(values)]
        body += [(_RETURN, 0, 0, _RET_ALLOW), (_RETURN, 0, 0, refuse)]
    # prlimit64 may only read. Both halves of the pointer count: one whose low half is zero is no null.
    return [
        *body,
        (_JUMP_EQUAL, 0, 6, syscalls.PRLIMIT64[here]),
        (_LOAD, 0, 0, _argument(2)),
        (_JUMP_EQUAL, 0, 2, 0),
        (_LOAD, 0, 0, _argument(2) + 4),
        (_JUMP_EQUAL, 1, 0, 0),
        (_RETURN, 0, 0, refuse),
        (_RETURN, 0, 0, _RET_ALLOW),
    ]


def install(*, allow_exec: bool = False, threads: bool = False) -> tuple[str, int | None]:
    """Put the filter on this process and all it starts; cannot be undone.

    Args:
        allow_exec: True for a build step.
        threads: Put it on threads that run already, too.

    Returns:
        (``notify``, listener descriptor), or (``errno``, None) where the kernel has no user notification.

    Raises:
        OSError: The kernel refused the filter altogether.
    """
    library = libc()
    if library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    flags = _FLAG_NEW_LISTENER | (_FLAG_TSYNC | _FLAG_TSYNC_ESRCH if threads else 0)
    listener = _load(library, program(_RET_NOTIFY, own_pid=os.getpid(), allow_exec=allow_exec), flags)
    if listener >= 0:
        return "notify", listener
    code = _load(library, program(_RET_ERRNO | errno.EPERM, own_pid=os.getpid(), allow_exec=allow_exec), _FLAG_TSYNC)
    if code < 0:
        raise OSError(-code, "seccomp")
    return "errno", None


def _load(library: ctypes.CDLL, body: Sequence[Instruction], flags: int) -> int:
    packed = b"".join(struct.pack("HBBI", *one) for one in body)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    header = _Program(len(body), ctypes.cast(buffer, ctypes.c_void_p))
    number = syscalls.SECCOMP[syscalls.machine()]
    result = int(library.syscall(number, _MODE_FILTER, flags, ctypes.byref(header)))
    return result if result >= 0 else -ctypes.get_errno()
