"""System call numbers and constants of the sandbox, for x86-64 and 64-bit Arm Linux."""

import platform
from collections.abc import Mapping

AUDIT_ARCH: Mapping[str, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""What the kernel calls the architecture in a seccomp filter."""

SECCOMP = {"x86_64": 317, "aarch64": 277}
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
"""Landlock's numbers are the same on every architecture."""

CLONE = {"x86_64": 56, "aarch64": 220}
CLONE3 = 435
KILL = {"x86_64": 62, "aarch64": 129}
TGKILL = {"x86_64": 234, "aarch64": 131}
PRCTL = {"x86_64": 157, "aarch64": 167}
PRLIMIT64 = {"x86_64": 302, "aarch64": 261}
FCNTL = {"x86_64": 72, "aarch64": 25}
IOCTL = {"x86_64": 16, "aarch64": 29}

_X86_64: Mapping[str, int] = {
    "fork": 57, "vfork": 58, "execve": 59, "execveat": 322, "ptrace": 101, "process_vm_readv": 310,
    "process_vm_writev": 311, "process_madvise": 440, "kcmp": 312, "pidfd_open": 434, "pidfd_getfd": 438,
    "pidfd_send_signal": 424, "socket": 41, "connect": 42, "bind": 49, "listen": 50, "accept": 43, "accept4": 288,
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "mount": 165, "umount2": 166,
    "pivot_root": 155, "chroot": 161, "unshare": 272, "setns": 308, "open_tree": 428, "move_mount": 429, "fsopen": 430,
    "mount_setattr": 442, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "keyctl": 250, "add_key": 248,
    "request_key": 249, "init_module": 175, "finit_module": 313, "delete_module": 176, "kexec_load": 246, "reboot": 169,
    "swapon": 167, "swapoff": 168, "settimeofday": 164, "clock_settime": 227, "adjtimex": 159, "clock_adjtime": 305,
    "open_by_handle_at": 304, "name_to_handle_at": 303, "quotactl": 179, "acct": 163, "seccomp": 317,
    "memfd_create": 319, "memfd_secret": 447, "shmget": 29, "msgget": 68, "semget": 64, "mq_open": 240, "tkill": 200,
    "setuid": 105, "setgid": 106,
    "setreuid": 113, "setresuid": 117, "setregid": 114, "setresgid": 119, "setgroups": 116, "capset": 126, "chmod": 90,
    "fchmod": 91, "fchmodat": 268, "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260, "iopl": 172, "ioperm": 173,
    "modify_ldt": 154, "syslog": 103, "vhangup": 153, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297,
    "fchmodat2": 452, "setpriority": 141, "sched_setscheduler": 144, "sched_setparam": 142, "sched_setattr": 314,
    "ioprio_set": 251, "migrate_pages": 256, "move_pages": 279, "utime": 132, "utimes": 235, "futimesat": 261,
    "utimensat": 280, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197, "lremovexattr": 198,
    "fremovexattr": 199, "setxattrat": 463, "removexattrat": 466, "inotify_init": 253, "inotify_init1": 294,
    "fanotify_init": 300, "fsmount": 432, "fsconfig": 431, "fspick": 433,
}  # fmt: skip

_AARCH64: Mapping[str, int] = {
    "execve": 221, "execveat": 281, "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271,
    "process_madvise": 440, "kcmp": 272, "pidfd_open": 434, "pidfd_getfd": 438, "pidfd_send_signal": 424, "socket": 198,
    "connect": 203, "bind": 200, "listen": 201, "accept": 202, "accept4": 242, "io_uring_setup": 425,
    "io_uring_enter": 426, "io_uring_register": 427, "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51,
    "unshare": 97, "setns": 268, "open_tree": 428, "move_mount": 429, "fsopen": 430, "mount_setattr": 442, "bpf": 280,
    "perf_event_open": 241, "userfaultfd": 282, "keyctl": 219, "add_key": 217, "request_key": 218, "init_module": 105,
    "finit_module": 273, "delete_module": 106, "kexec_load": 104, "reboot": 142, "swapon": 224, "swapoff": 225,
    "settimeofday": 170, "clock_settime": 112, "adjtimex": 171, "clock_adjtime": 266, "open_by_handle_at": 265,
    "name_to_handle_at": 264, "quotactl": 60, "acct": 89, "seccomp": 277, "memfd_create": 279, "memfd_secret": 447,
    "shmget": 194, "msgget": 186, "semget": 190, "mq_open": 180, "tkill": 130, "setuid": 146, "setgid": 144,
    "setreuid": 145, "setresuid": 147, "setregid": 143, "setresgid": 149, "setgroups": 159, "capset": 91, "fchmod": 52,
    "fchmodat": 53, "fchown": 55, "fchownat": 54, "syslog": 116, "vhangup": 58,
    "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240, "fchmodat2": 452, "setpriority": 140, "sched_setscheduler": 119,
    "sched_setparam": 118, "sched_setattr": 274, "ioprio_set": 30, "migrate_pages": 238, "move_pages": 239,
    "utimensat": 88, "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15,
    "fremovexattr": 16, "setxattrat": 463, "removexattrat": 466, "inotify_init1": 26, "fanotify_init": 262,
    "fsmount": 432, "fsconfig": 431, "fspick": 433,
}  # fmt: skip


def machine() -> str:
    """Return ``x86_64`` or ``aarch64``, or whatever else this machine calls itself."""
    name = platform.machine()
    return {"AMD64": "x86_64", "arm64": "aarch64"}.get(name, name)


def blocked() -> Mapping[str, int]:
    """Return the system calls that a candidate has no use for, by name."""
    return {"x86_64": _X86_64, "aarch64": _AARCH64}.get(machine(), {})


def name_of(number: int) -> str:
    """Return the name of a system call that the filter watches, or its number as text."""
    here = machine()
    special = {
        CLONE.get(here): "fork",
        KILL.get(here): "kill",
        TGKILL.get(here): "tgkill",
        PRLIMIT64.get(here): "prlimit64",
        PRCTL.get(here): "prctl",
        FCNTL.get(here): "fcntl",
        IOCTL.get(here): "ioctl",
    }
    for name, value in blocked().items():
        if value == number:
            return name
    return special.get(number, f"syscall {number}")
