"""Read and replace one file of another program: never outside its folder, never by halves, never over a change."""

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from kb.errors import ConfigError

LARGEST = 64 << 20
"""Largest file that is read, bytes."""

_BOM = "\ufeff"


def real_place(base: Path, relative: str) -> Path:
    """Return where a file really lies, with symbolic links followed.

    Args:
        base: The folder that must not be left.
        relative: The file, below it.

    Raises:
        ConfigError: A link leads out of the folder, or something on the way is no folder.
    """
    top = Path(os.path.realpath(base))
    try:
        found = Path(os.path.realpath(top / relative))
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"{base / relative}: {error}", hint="mend the link") from error
    if not found.is_relative_to(top) or found == top:
        raise ConfigError(f"{base / relative} is a link that leads out of {base}", hint="nothing was changed")
    return found


def read(file: Path) -> str | None:
    """Return a file's text with its line ends as they are, or None if there is no such file.

    Raises:
        ConfigError: It is no regular file, too large, not to be read, or no UTF-8.
    """
    try:
        found = file.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(f"{file} is no file", hint="move it away; nothing was changed")
        if found.st_size > LARGEST:
            raise ConfigError(f"{file} is larger than {LARGEST >> 20} MiB", hint="nothing was changed")
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}", hint="nothing was changed") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: expected UTF-8 text: {error}", hint="nothing was changed") from error


def parted(text: str) -> tuple[str, str]:
    """Return the byte order mark of a text, or nothing, and the rest."""
    return (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)


def make_folders(file: Path) -> list[str]:
    """Make the folders that a file needs.

    Returns:
        Those that were made, outermost first.

    Raises:
        ConfigError: One cannot be made.
    """
    missing = []
    folder = file.parent
    while not folder.exists():
        missing.append(str(folder))
        folder = folder.parent
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{file.parent}: {error.strerror or error}", hint="nothing was changed") from error
    return missing[::-1]


def drop_folders(folders: list[str]) -> None:
    """Remove folders that are empty, innermost first."""
    for one in reversed(folders):
        with contextlib.suppress(OSError):
            Path(one).rmdir()


def replace(file: Path, before: str | None, after: str | None, *, private: bool) -> None:
    """Put a text in a file's place, or take the file away, in one step.

    Args:
        file: Where it really lies; its folder exists.
        before: What stood there when it was looked at; None if nothing did.
        after: What is to stand there; None for nothing.
        private: A new file is for its owner alone.

    Raises:
        ConfigError: It changed in the meantime, or cannot be written.
    """
    try:
        if after is None:
            _unchanged(file, before)
            file.unlink(missing_ok=True)
            return
        _write(file, before, after, private=private)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}", hint="nothing was changed in it") from error


def keep(file: Path, text: str) -> None:
    """Keep a copy of a text that will be replaced; for its owner alone, since settings may hold secrets.

    Args:
        file: Where; named by the content, so one that is there already is the same.
        text: What is kept.

    Raises:
        ConfigError: It cannot be written; then nothing is to be replaced either.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if read(file) != text:
            _write(file, None, text, private=True)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}", hint="nothing was changed") from error


def _write(file: Path, before: str | None, after: str, *, private: bool) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{file.name[:60]}.", suffix=".new", dir=file.parent)
    new = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(after.encode("utf-8"))
            stream.flush()
            os.fsync(stream.fileno())
        new.chmod(_mode(file, private=private))
        _unchanged(file, before)
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)


def _mode(file: Path, *, private: bool) -> int:
    try:
        return stat.S_IMODE(file.stat().st_mode)
    except FileNotFoundError:
        if private:
            return 0o600
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _unchanged(file: Path, before: str | None) -> None:
    if read(file) != before:
        raise ConfigError(f"{file} changed in the meantime", hint="run the command again")
