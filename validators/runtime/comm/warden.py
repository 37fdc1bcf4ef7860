"""A network that the ranks of one job have to themselves, and a meter on every connection in it.

The warden is a trusted process in a network namespace with nothing but a loopback interface. The ranks join it, connect
over gloo or NCCL, and are sealed. The kernel counts what each connection carried; the warden reads that (sock_diag), so
the count is made where no rank can reach.
"""

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kb.validators.runtime import seccomp, wire
from kb.validators.runtime.errors import JudgeError
from kb.validators.runtime.starting import boot_command

_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_NETLINK_SOCK_DIAG, _BY_FAMILY, _REQUEST_DUMP, _DONE, _ERROR = 4, 20, 0x301, 3, 2
_INFO = 2
_BYTES_RECEIVED = 128
"""Offset of ``tcpi_bytes_received`` in ``struct tcp_info``."""

_MESSAGE = struct.Struct("=BBBB HH 16s 16s I 2I IIIII".replace(" ", ""))
"""``struct inet_diag_msg``."""


@dataclass(frozen=True)
class Connection:
    """One end of one connection."""

    inode: int
    port: int
    peer_port: int
    received: int
    """Payload bytes that arrived at this end since it was opened."""


def main() -> None:
    """Make the network, then tell the judge about its connections whenever it asks."""
    control = socket.socket(fileno=int(sys.argv[1]))
    if seccomp.libc().unshare(_NEWNET) != 0:
        wire.send(control, {"error": os.strerror(ctypes.get_errno())})
        return
    _raise_loopback()
    wire.send(control, {"ready": True})
    while True:
        try:
            wire.receive(control, limit_s=None)
        except wire.WireError:
            return
        wire.send(control, {"connections": [list(vars(one).values()) for one in connections()]})


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(one, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(one, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def connections() -> Iterator[Connection]:
    """Yield every TCP connection of this network namespace, each end on its own.

    Raises:
        OSError: The kernel has no sock_diag.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as one:
        body = struct.pack("=BBBxI48x", socket.AF_INET, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0xFFFFFFFF)
        one.send(struct.pack("=IHHII", 16 + len(body), _BY_FAMILY, _REQUEST_DUMP, 1, 0) + body)
        while True:
            data = one.recv(1 << 20)
            while data:
                size, kind = struct.unpack_from("=IH", data)
                if kind in (_DONE, _ERROR):
                    return
                if (found := _connection(data[16:size])) is not None:
                    yield found
                data = data[(size + 3) & ~3 :]


def _connection(body: bytes) -> Connection | None:
    fields = _MESSAGE.unpack_from(body)
    port, peer_port, inode = socket.ntohs(fields[4]), socket.ntohs(fields[5]), fields[-1]
    rest = body[_MESSAGE.size :]
    while len(rest) >= 4:
        size, kind = struct.unpack_from("=HH", rest)
        if kind == _INFO and size >= 4 + _BYTES_RECEIVED + 8:
            return Connection(inode, port, peer_port, struct.unpack_from("=Q", rest, 4 + _BYTES_RECEIVED)[0])
        rest = rest[max((size + 3) & ~3, 4) :]
    return None


class Warden:
    """The judge's handle on the warden."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                boot_command("kb.validators.runtime.comm.warden", str(theirs.fileno())),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(theirs.fileno(),),
            )  # fmt: skip
        finally:
            theirs.close()
        self._owner: Mapping[int, int] = {}
        self._before: Counter[tuple[int, int]] = Counter()
        try:
            answer = wire.receive(self._control, limit_s=30)
        except wire.WireError as error:
            answer = {"error": str(error)}
        if "ready" not in answer:
            self.close()
            raise JudgeError(
                f"no network namespace can be made here: {answer.get('error')}", "run as root, or judge over the switch"
            )
        self.network = os.open(f"/proc/{self._process.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        """Descriptor of the network namespace."""

    def owned(self, sockets: Mapping[int, list[int]]) -> None:
        """Learn whose the connections are; from now on none can be added.

        Args:
            sockets: Rank to the inode numbers of its sockets, read before any candidate was loaded.
        """
        self._owner = {inode: rank for rank, inodes in sockets.items() for inode in inodes}

    def begin(self) -> None:
        """Begin to count anew."""
        self._before = self._read()

    def moved(self) -> tuple[Counter[int], Counter[int]]:
        """Return what every rank sent and received since ``begin``, in bytes, headers of the transport included."""
        sent: Counter[int] = Counter()
        received: Counter[int] = Counter()
        for (source, to), size in (self._read() - self._before).items():
            sent[source] += size
            received[to] += size
        return sent, received

    def _read(self) -> Counter[tuple[int, int]]:
        """Return (from, to) to bytes, since the connections were made."""
        wire.send(self._control, {"op": "connections"})
        found = [Connection(*one) for one in wire.receive(self._control, limit_s=30)["connections"]]
        owner = {(one.port, one.peer_port): self._owner.get(one.inode) for one in found}
        totals: Counter[tuple[int, int]] = Counter()
        for one in found:
            to, source = self._owner.get(one.inode), owner.get((one.peer_port, one.port))
            if to is not None and source is not None:
                totals[source, to] += one.received
        return totals

    def close(self) -> None:
        """End the process; the network goes with its last rank."""
        self._control.close()
        if hasattr(self, "network"):
            os.close(self.network)
        self._process.kill()
        self._process.wait(timeout=5)
