"""Landlock through ctypes: the part of the file system that a candidate sees."""

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

from kb.validators.runtime import syscalls
from kb.validators.runtime.seccomp import libc

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_ALL_V1 = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_NET_ALL = 0b11
_SCOPE_ALL = 0b11
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def abi() -> int:
    """Return the kernel's Landlock version; 0 if it has none or it is switched off."""
    version = int(libc().syscall(syscalls.LANDLOCK_CREATE, None, 0, _VERSION_FLAG))
    return max(version, 0)


def _handled(version: int) -> int:
    rights = _ALL_V1
    if version >= 2:
        rights |= _REFER
    if version >= 3:
        rights |= _TRUNCATE
    if version >= 5:
        rights |= _IOCTL_DEV
    return rights


def restrict(
    *, read: Iterable[Path], write: Iterable[Path], execute: Iterable[Path] | None = None, tcp: bool = False
) -> int:
    """Leave this process, for ever, only the given parts of the file system, and no TCP.

    Args:
        read: Files and folders that may be read; missing ones are passed over.
        write: Files and folders that may be written and read.
        execute: What may be started as a program; None for all that may be read.
        tcp: Leave TCP alone, for a process that has a network of its own and is sealed once it is connected.

    Returns:
        The Landlock version in force.

    Raises:
        OSError: The kernel has no Landlock or refused a rule.
    """
    version = abi()
    if version < 1:
        raise OSError(0, "this kernel has no Landlock")
    handled = _handled(version)
    library = libc()
    attributes = _Ruleset(handled, _NET_ALL if version >= 4 and not tcp else 0, _SCOPE_ALL if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = int(library.syscall(syscalls.LANDLOCK_CREATE, ctypes.byref(attributes), size, 0))
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    try:
        start = _EXECUTE if execute is None else 0
        for path in read:
            _allow(library, ruleset, path, (start | _READ_FILE | _READ_DIR) & handled)
        for path in execute or ():
            _allow(library, ruleset, path, (_EXECUTE | _READ_FILE | _READ_DIR) & handled)
        for path in write:
            _allow(library, ruleset, path, handled & ~_EXECUTE)
        if library.prctl(38, 1, 0, 0, 0) != 0 or library.syscall(syscalls.LANDLOCK_RESTRICT, ruleset, 0) != 0:
            raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    finally:
        os.close(ruleset)
    return version


def _allow(library: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not path.is_dir():
            rights &= _FILE_RIGHTS
        rule = _PathBeneath(rights, descriptor)
        if library.syscall(syscalls.LANDLOCK_ADD, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0) != 0:
            raise OSError(ctypes.get_errno(), f"landlock_add_rule {path}")
    finally:
        os.close(descriptor)
