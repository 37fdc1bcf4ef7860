"""Find out which form a trace has, by its content, and read it."""

from pathlib import Path

from kb.errors import SourceUnavailableError
from kb.importers.traces.chrome import read_chrome
from kb.importers.traces.nsys import read_csv, read_sqlite
from kb.importers.traces.opening import opened
from kb.importers.traces.profile import Profile, malformed

_SQLITE = b"SQLite format 3\x00"
_REPORT = b"NVIDIA"


def read_trace(path: Path) -> Profile:
    """Read a trace of any form that is known.

    Args:
        path: Chrome JSON of torch's profiler, plain or gzipped; SQLite export or CSV of Nsight Systems.

    Returns:
        Times and calls.

    Raises:
        SourceUnavailableError: It cannot be read, is none of these, or is broken; the message says what was found.
    """
    with opened(path) as stream:
        head = stream.read(4096)
    if head.startswith(_SQLITE):
        return read_sqlite(path)
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start:
        raise malformed("the file is blank at its start")
    if path.suffix.lower() == ".nsys-rep" or start.startswith(_REPORT):
        raise SourceUnavailableError(
            f"{path.name}: a report of Nsight Systems has to be exported first",
            hint=f"nsys export --type sqlite {path.name}",
        )
    if b"\x00" in head:
        raise malformed("it is a binary file of an unknown form")
    with opened(path) as stream:
        return read_chrome(stream) if start[:1] in b"{[" else read_csv(stream)
