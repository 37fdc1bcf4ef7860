"""Opens what an import names: a folder, a file, an archive or a git repository; all become a folder to walk."""

import os
import re
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, cast

from kb.errors import SourceFormatError, SourceUnavailableError
from kb.importers import license as licenses
from kb.importers.naming import unsafe_path, windows_fault
from kb.importers.repository import opening as repository
from kb.importers.tree import LICENSE_FILE, Origin, Tree, open_tree

MAX_ARCHIVE_BYTES = 4 << 30
"""All of an archive, unpacked."""
MAX_MEMBER_BYTES = 256 << 20
MAX_MEMBERS = 300_000
_MOST_RATIO = 200
"""Unpacked over packed, from a megabyte on: text packs ten- to twentyfold, a bomb a thousandfold."""
_RATIO_FROM = 1 << 20
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Stated:
    """What the user says of a source; None where nothing was said."""

    repository: str | None = None
    commit: str | None = None
    license: str | None = None
    """For files that state none."""


@contextmanager
def opened(source: str, stated: Stated) -> Iterator[Tree]:
    """Open a source; what was unpacked or cloned is gone when the block ends.

    Args:
        source: Path of a folder, file or archive (zip, wheel, tar, gz), or address of a git repository.
        stated: What is known beyond it.

    Raises:
        SourceUnavailableError: It does not exist or cannot be read.
        SourceFormatError: The archive is broken or hostile.
    """
    path = Path(source)
    with tempfile.TemporaryDirectory(prefix="kb-import-", ignore_cleanup_errors=True) as name:
        if path.is_symlink() and not path.exists():
            raise SourceUnavailableError(f"{source} is a link to nothing")
        tree: Tree
        commit = None if path.is_file() else repository.opened(source, Path(name), stated.commit)
        if commit is not None:
            try:
                # The commit is what was read, whatever the user called it.
                yield replace(commit, base=_stated(commit.base, replace(stated, commit=None)))
            finally:
                commit.objects.close()
            return
        if path.is_dir():
            tree = _folder(path.resolve(), Path(name))
        elif path.is_file():
            tree = _file(path, Path(name))
        else:
            raise SourceUnavailableError(f"no file or folder {source}", hint="kb import PATH_OR_URL")
        yield replace(tree, base=_stated(tree.base, stated))


def _stated(base: Origin, stated: Stated) -> Origin:
    return replace(
        base,
        repository=stated.repository or base.repository,
        commit=stated.commit or base.commit,
        license=base.license or stated.license,  # as the option says: for what states none
    )


def _folder(path: Path, scratch: Path) -> Tree:
    return open_tree(path, repository.origin_of(path, scratch) or _of_wheel(path) or Origin(path.name, ""))


def _file(path: Path, scratch: Path) -> Tree:
    suffix = "".join(path.suffixes[-2:]).lower()
    if zipfile.is_zipfile(path) and path.suffix.lower() in (".zip", ".whl"):
        _unzip(path, scratch)
        return _folder_of_archive(scratch, path)
    if suffix.endswith((".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.bz2")):
        _untar(path, scratch)
        return _folder_of_archive(scratch, path)
    if suffix.endswith(".gz"):
        _gunzip(path, scratch / path.name.removesuffix(".gz"))
        return open_tree(scratch, Origin(path.name, ""))
    if suffix.endswith((".zip", ".whl")):
        raise SourceFormatError(f"{path.name}: expected a zip archive, found something else")
    folder = path.resolve().parent
    # The folders above say which version of what a file is for: keep them in its path.
    outer = folder.parents[1] if len(folder.parents) > 2 else folder
    inner = path.resolve().relative_to(outer).as_posix()
    origin = repository.origin_of(folder, scratch)
    if origin is not None and origin.url is not None:
        return replace(open_tree(folder, origin, only=path.name))
    prefix = inner.rpartition("/")[0]
    return replace(open_tree(folder, Origin(path.name, prefix), only=path.name))


def _folder_of_archive(scratch: Path, path: Path) -> Tree:
    inside = [each for each in scratch.iterdir() if each.is_dir()]
    found = _of_wheel(scratch)
    if found is None and len(inside) == 1 and len(list(scratch.iterdir())) == 1:
        return open_tree(inside[0], Origin(inside[0].name, ""))
    return open_tree(scratch, found or Origin(path.name, ""))


def _of_wheel(path: Path) -> Origin | None:
    """Return what the metadata of an unpacked wheel say, or None."""
    for folder in sorted(path.glob("*.dist-info"))[:1]:
        with suppress(OSError, ValueError):
            head = (folder / "METADATA").read_text(encoding="utf-8").split("\n\n", 1)[0]
            fields = dict(re.findall(r"(?m)^([A-Za-z-]+): (.+)$", head))
            return Origin(
                repository=_repository(fields) or fields["Name"],
                path="",
                commit=f"wheel {fields['Version']}",
                license=_license_of(folder, fields),
            )
    return None


def _license_of(folder: Path, fields: Mapping[str, str]) -> str | None:
    """Return what a wheel says of its license: in one word, or by the text that lies among its metadata."""
    for name in ("License-Expression", "License"):
        stated = licenses.spdx(fields.get(name, ""))
        if stated is not None and stated.upper() != "UNKNOWN":  # what older builders write for nothing
            return stated
    texts = [
        one for place in ("licenses", ".") for one in sorted((folder / place).glob("*")) if LICENSE_FILE.match(one.name)
    ]
    found = {licenses.of_text(one.read_text(encoding="utf-8", errors="replace")) for one in texts}
    known = sorted(one for one in found if one is not None)
    # One text that is not known stands in the way of the others: it may say something else.
    return " AND ".join(known) if known and None not in found else licenses.UNKNOWN if texts else None


def _repository(fields: dict[str, str]) -> str | None:
    found = re.search(r"github\.com/([\w.\-]+/[\w.\-]+)", " ".join(fields.values()))
    return found.group(1).removesuffix(".git") if found else None


class _Budget:
    """Counts what an archive unpacks to."""

    def __init__(self, packed: int) -> None:
        self._packed = max(packed, 1)
        self._total = 0
        self._members = 0

    def member(self, name: str) -> None:
        """Count one file and refuse a name that leads out of the archive.

        Raises:
            SourceFormatError: There are too many, or the name does.
        """
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise SourceFormatError(f"expected at most {MAX_MEMBERS:,} files in an archive")
        fault = unsafe_path(name) or (windows_fault(name) if os.name == "nt" else None)
        if fault is not None:
            raise SourceFormatError(f"the archive has a file {name!r:.100}: {fault}")

    def copy(self, source: IO[bytes], target: Path) -> None:
        """Write one file, block by block, within all limits."""
        target.parent.mkdir(parents=True, exist_ok=True)
        size = 0
        with target.open("xb") as file:
            while block := source.read(_BLOCK):
                size += len(block)
                self._total += len(block)
                if size > MAX_MEMBER_BYTES or self._total > MAX_ARCHIVE_BYTES:
                    raise SourceFormatError(f"the archive unpacks to more than is allowed (at {target.name!r:.100})")
                if self._total > _RATIO_FROM and self._total > _MOST_RATIO * self._packed:
                    raise SourceFormatError(f"the archive unpacks to more than {_MOST_RATIO} times its size")
                file.write(block)


def _unzip(path: Path, scratch: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            budget = _Budget(path.stat().st_size)
            for member in archive.infolist():
                mode = member.external_attr >> 16
                if member.is_dir() or (mode & 0o170000) == 0o120000:
                    continue
                budget.member(member.filename)
                with archive.open(member) as source:
                    budget.copy(source, scratch / member.filename)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise SourceFormatError(f"{path.name}: expected a zip archive, found: {error}") from error
    except OSError as error:
        raise SourceUnavailableError(f"cannot unpack {path.name}: {error.strerror or error}") from error


def _untar(path: Path, scratch: Path) -> None:
    try:
        with tarfile.open(path) as archive:
            budget = _Budget(path.stat().st_size)
            for member in archive:
                source = archive.extractfile(member) if member.isreg() else None
                if source is None:
                    continue
                name = member.name.removeprefix("./")
                budget.member(name)
                with source:
                    budget.copy(source, scratch / name)
    except (tarfile.TarError, zlib.error, EOFError) as error:
        raise SourceFormatError(f"{path.name}: expected a tar archive, found: {error}") from error
    except OSError as error:
        raise SourceUnavailableError(f"cannot unpack {path.name}: {error.strerror or error}") from error


def _gunzip(path: Path, target: Path) -> None:
    import gzip

    try:
        with gzip.open(path) as source:
            _Budget(path.stat().st_size).copy(cast(IO[bytes], source), target)
    except (zlib.error, EOFError, gzip.BadGzipFile) as error:
        raise SourceFormatError(f"{path.name}: expected a gzip file, found: {error}") from error
    except OSError as error:
        raise SourceUnavailableError(f"cannot unpack {path.name}: {error.strerror or error}") from error
    shutil.copystat(path, target)
