"""A source as a tree of files: walked folder by folder, links never followed, nothing read beyond its limits."""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, TypeVar

from kb.errors import SourceFormatError, SourceUnavailableError
from kb.importers.naming import unsafe_path

MANIFEST = "MANIFEST.jsonl"
"""At the root of a collection: one JSON object a line with ``file``, ``repo``, ``url``, ``commit``, ``path``,
``license``, ``upstream_sha256`` and ``saved_sha256``, which say where each file came from; ``file`` alone is needed."""

CHANGED = "changed by the collection that it came with"
"""Note on files whose row of the manifest says that they are not as they were published."""

MAX_FILE_BYTES = 32 << 20
"""Largest file that is read whole."""
_MAX_MANIFEST_BYTES = 64 << 20
SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules"})
"""Names of folders that nobody wrote by hand."""
LICENSE_FILE = re.compile(r"(?i)^(licen[cs]e|copying|unlicense)([.-].*)?$")
"""Names of files that hold a license."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One regular file of a source."""

    path: str
    """Relative to the source, with ``/``."""
    size: int
    """In bytes, when it was listed."""

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def folder(self) -> str:
        """Path of its folder; empty at the root."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True)
class Origin:
    """Where a file was published."""

    repository: str
    path: str
    commit: str | None = None
    url: str | None = None
    license: str | None = None
    """As the collection's manifest states it."""
    sha256: str | None = None
    """Of the bytes that lie here, as the manifest states it; None if it does not."""
    note: str | None = None


@dataclass(frozen=True)
class Listing:
    """One folder of a walk."""

    path: str
    files: tuple[SourceFile, ...]
    """Regular files, by name."""
    left_out: tuple[tuple[str, str], ...]
    """Path and reason of what is neither a file nor a folder of this source."""


@dataclass(frozen=True)
class Tree:
    """A source on disk."""

    root: Path
    """A folder."""
    base: Origin
    """What is known of all files: repository, commit and url; its path is a prefix."""
    only: str | None = None
    """Name of the one file that was asked for; None for everything. Its neighbours are listed all the same."""
    manifest: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    """Rows of the collection's manifest by path."""
    licenses: dict[str, str | None] = field(default_factory=dict, repr=False, compare=False)
    """What :mod:`kb.importers.license` has found so far, by folder."""

    def walk(self, prune: set[str] | None = None) -> Iterator[Listing]:
        """Yield the folders of the source, parents first, in the order of their names.

        Only one folder's names are held at a time, and the names of the folders still to come. Hidden folders and byte
        code are left out silently.

        Args:
            prune: Paths of folders not to go into; may grow while walking.

        Raises:
            SourceUnavailableError: The source's own folder cannot be listed.
        """
        stack = [""]
        while stack:
            path = stack.pop()
            if prune and any(path == each or path.startswith(f"{each}/") for each in prune):
                continue
            listing, folders = self._list(path)
            yield listing
            stack.extend(reversed(folders))

    def _list(self, path: str) -> tuple[Listing, list[str]]:
        files: list[SourceFile] = []
        folders: list[str] = []
        left_out: list[tuple[str, str]] = []
        try:
            with os.scandir(self.root / path) as listing:
                for item in listing:
                    name = f"{path}/{item.name}" if path else item.name
                    self._sort(item, name, files, folders, left_out)
        except OSError as error:
            if not path:
                raise SourceUnavailableError(f"cannot list {self.root}: {error.strerror}") from error
            left_out.append((path, f"cannot be listed: {error.strerror}"))
        files.sort(key=lambda each: each.path)
        if self.only is not None:
            # Its neighbours are listed, because some of them may belong to it; the caller leaves the others out.
            return Listing(path, tuple(files), ()), []
        return Listing(path, tuple(files), tuple(sorted(left_out))), sorted(folders)

    @staticmethod
    def _sort(
        item: os.DirEntry[str],
        name: str,
        files: list[SourceFile],
        folders: list[str],
        left_out: list[tuple[str, str]],
    ) -> None:
        try:
            if item.is_symlink():
                left_out.append((name, "a link: links are not followed"))
            elif item.is_dir(follow_symlinks=False):
                if not item.name.startswith(".") and item.name not in SKIPPED_FOLDERS:
                    folders.append(name)
            elif item.is_file(follow_symlinks=False):
                files.append(SourceFile(name, item.stat(follow_symlinks=False).st_size))
            else:
                left_out.append((name, "expected a regular file, found a device, pipe or socket"))
        except OSError as error:
            left_out.append((name, f"cannot be looked at: {error.strerror}"))

    def read(self, path: str, *, limit: int = MAX_FILE_BYTES) -> bytes:
        """Read one regular file of the source.

        Args:
            path: Relative to the source, with ``/``.
            limit: Most bytes that it may have.

        Raises:
            SourceFormatError: It lies outside, is no regular file, is larger than ``limit``, or cannot be read.
        """
        with self.open(path) as file:
            try:
                body = file.read(limit + 1)
            except OSError as error:
                raise SourceFormatError(f"cannot be read: {error.strerror}") from error
        if len(body) > limit:
            raise SourceFormatError(f"expected at most {limit:,} bytes, found more")
        return body

    def open(self, path: str) -> IO[bytes]:
        """Open one regular file of the source, to be read piece by piece whatever its size.

        Args:
            path: Relative to the source, with ``/``.

        Raises:
            SourceFormatError: It lies outside, is no regular file, or cannot be read.
        """
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            handle = os.open(self.inside(path), flags)
        except (OSError, ValueError) as error:
            raise SourceFormatError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise SourceFormatError("expected a regular file, found a device, pipe or folder")
        return os.fdopen(handle, "rb")

    def head(self, path: str, most: int = 4096) -> bytes:
        """Return the first bytes of a file of the source; nothing where it cannot be read."""
        try:
            with self.inside(path).open("rb") as file:
                return file.read(most)
        except (OSError, SourceFormatError):
            return b""

    def inside(self, path: str) -> Path:
        """Return where a file lies on disk.

        Raises:
            SourceFormatError: The path leads out of the source, also through a link.
        """
        fault = unsafe_path(path)
        if fault is not None:
            raise SourceFormatError(f"the path leads out of the source: {fault}")
        found = self.root / path
        folder = path.rpartition("/")[0]
        if folder and not _is_inside(str(self.root), folder):
            raise SourceFormatError("the path leads out of the source through a link")
        return found

    def exists(self, path: str) -> bool:
        """Tell whether the source has a regular file of this path."""
        try:
            return stat.S_ISREG(self.inside(path).lstat().st_mode)
        except (OSError, SourceFormatError):
            return False

    def license_text(self, folder: str) -> bytes | None:
        """Return the beginning of the license file in a folder, or None where there is none.

        Args:
            folder: Relative to the source; empty for its own folder.
        """
        place = self.root / folder
        try:
            with os.scandir(place) as listing:
                names = [
                    each.name
                    for each in listing
                    if LICENSE_FILE.match(each.name) and each.is_file(follow_symlinks=False)
                ]
            if not names:
                return None
            with (place / min(names)).open("rb") as file:
                return file.read(65_536)
        except OSError:
            return None

    def origin_of(self, path: str) -> Origin:
        """Return where a file comes from: its row of the manifest, else what is known of the whole source.

        Args:
            path: Relative to the source.
        """
        row = self.manifest.get(path)
        if row is None:
            prefix = self.base.path
            return replace(self.base, path=f"{prefix}/{path}" if prefix else path)
        return Origin(
            repository=str(row.get("repo") or self.base.repository),
            path=str(row.get("path") or path),
            commit=_text(row.get("commit")),
            url=_text(row["url"]) if "url" in row else _url(str(row["repo"])) if row.get("repo") else None,
            license=_text(row.get("license")),
            sha256=_text(row.get("saved_sha256")),
            note=CHANGED if row.get("changed") is True else None,
        )


@lru_cache(maxsize=4096)
def _is_inside(root: str, folder: str) -> bool:
    real = os.path.realpath(root)
    return os.path.realpath(os.path.join(real, folder)) == os.path.normpath(os.path.join(real, folder))  # noqa: PTH118


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _url(repository: str) -> str | None:
    return f"https://github.com/{repository}" if repository.count("/") == 1 and " " not in repository else None


def open_tree(root: Path, base: Origin, *, only: str | None = None) -> Tree:
    """Look at a folder as a source, with its manifest if it has one.

    Args:
        root: The folder.
        base: What is known of where it comes from.
        only: Name of the one file that is meant.

    Raises:
        SourceUnavailableError: It is no folder.
        SourceFormatError: Its manifest cannot be read.
    """
    if not root.is_dir():
        raise SourceUnavailableError(f"no folder {root}")
    return with_manifest(Tree(root, base, only))


AnyTree = TypeVar("AnyTree", bound=Tree)


def with_manifest(bare: AnyTree) -> AnyTree:
    """Add the rows of a source's manifest, if it has one.

    Args:
        bare: A source.

    Raises:
        SourceFormatError: Its manifest cannot be read.
    """
    if not bare.exists(MANIFEST):
        return bare
    rows: dict[str, Mapping[str, Any]] = {}
    for number, line in enumerate(bare.read(MANIFEST, limit=_MAX_MANIFEST_BYTES).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SourceFormatError(f"{MANIFEST}, line {number}: expected a JSON object, found: {error}") from error
        if not isinstance(row, dict) or not isinstance(row.get("file"), str):
            raise SourceFormatError(f"{MANIFEST}, line {number}: expected an object with the field file")
        rows[row["file"]] = row
    return replace(bare, manifest=rows)
