"""Open what may be huge, compressed or hostile, as a stream of bytes with limits."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from kb.errors import SourceUnavailableError
from kb.importers.traces.profile import malformed

MOST_BYTES = 8 << 30
"""Of a trace, unpacked."""
_FREE_BYTES = 64 << 20
"""Unpacked bytes from which on the ratio counts."""
_MOST_RATIO = 250
"""Of unpacked to packed; genuine traces stay below 60, and deflate can reach 1,032."""
_GZIP = b"\x1f\x8b"


class Limited(io.RawIOBase):
    """A stream that ends with an error where it is too long, too dense or broken."""

    def __init__(self, stream: BinaryIO, raw: BinaryIO) -> None:
        super().__init__()
        self._stream = stream
        self._raw = raw
        self._done = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes.

        Raises:
            SourceUnavailableError: The stream is truncated or no gzip, or a limit is passed.
        """
        try:
            body = self._stream.read(size)
        except EOFError as error:
            raise malformed("the compressed file is truncated") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise malformed(f"the compressed file is damaged ({error})") from error
        except OSError as error:
            raise malformed(error.strerror or str(error)) from error
        self._done += len(body)
        if self._done > MOST_BYTES:
            raise malformed(f"it has more than {MOST_BYTES >> 30} GiB")
        if self._done > _FREE_BYTES and self._stream is not self._raw and self._done > _MOST_RATIO * self._raw.tell():
            raise malformed(f"it unpacks to more than {_MOST_RATIO} times its size")
        return body


@contextmanager
def opened(path: Path) -> Iterator[Limited]:
    """Open a file, unpacking gzip.

    Args:
        path: A regular file.

    Raises:
        SourceUnavailableError: It is missing, empty, no regular file, or cannot be read.
    """
    try:
        if not path.is_file():
            raise SourceUnavailableError(f"{path}: expected a file, found none")
        if path.stat().st_size == 0:
            raise malformed("the file is empty")
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            if packed:
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield Limited(cast(BinaryIO, unpacked), raw)
            else:
                yield Limited(raw, raw)
    except OSError as error:
        raise SourceUnavailableError(f"{path}: {error.strerror or error}") from error
