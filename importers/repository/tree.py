"""A commit as a tree of files, read object by object; at most some folders' names are held at a time."""

import re
import tempfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO

from kb.errors import SourceFormatError, SourceUnavailableError
from kb.importers.naming import unsafe_path
from kb.importers.repository import commands
from kb.importers.repository.locating import Located
from kb.importers.tree import LICENSE_FILE, MAX_FILE_BYTES, SKIPPED_FOLDERS, Listing, SourceFile, Tree

MAX_FILES = 1_000_000
"""In a commit. A few kilobytes of objects can spell out any number of files, each folder holding the next one ten
times."""
MAX_FOLDERS = 200_000
MAX_COPIED_BYTES = 2 << 30
"""Of one file that is read as a stream: what a whole fetch may have."""
_MAX_TREE_BYTES = 64 << 20
_MOST_DEPTH = 64
_KEPT_NAMES = 200_000
"""Names of folders that were looked at, kept for the next question."""
_MOST_COMMITS = 20_000
_FILE, _LINK, _MODULE, _TREE = "file", "link", "module", "tree"
_KINDS = {"100644": _FILE, "100755": _FILE, "100664": _FILE, "120000": _LINK, "160000": _MODULE, "40000": _TREE}


@dataclass(frozen=True, slots=True)
class Node:
    """One name in a folder of a commit."""

    kind: str
    id: str
    """Of its object."""


@dataclass(frozen=True)
class Change:
    """A commit that changed a file; who made it is not kept."""

    commit: str
    date: str
    """``YYYY-MM-DD``, as committed."""


class Objects:
    """Reads the objects of one commit."""

    def __init__(self, located: Located, *, suffixes: Sequence[str] = ()) -> None:
        self.located = located
        self._suffixes = tuple(suffixes)
        self._bodies = commands.Batch(located.git_dir, located.objects, "--batch")
        self._headers = commands.Batch(located.git_dir, located.objects, "--batch-check")
        self._kept: OrderedDict[str, Mapping[str, Node]] = OrderedDict()
        self._names = 0
        self._history: Mapping[str, tuple[Change, ...]] | None = None
        self._root = self._root_id()

    def __getstate__(self) -> Mapping[str, object]:
        # Another process asks git itself; it gets the history if that was looked up, and no names.
        return {**self.__dict__, "_kept": OrderedDict(), "_names": 0}

    def _root_id(self) -> str:
        kind, body = self._bodies.body(self.located.commit, 16 << 20)
        found = re.match(rb"tree ([0-9a-f]{40,64})\n", body)
        if kind != "commit" or found is None:
            raise SourceFormatError("expected a commit that names a tree")
        return found.group(1).decode("ascii")

    def close(self) -> None:
        """End the processes."""
        self._bodies.close()
        self._headers.close()

    def folder(self, path: str) -> Mapping[str, Node]:
        """Return the names in a folder.

        Raises:
            SourceFormatError: There is no such folder, or its object is broken.
        """
        node = Node(_TREE, self._root)
        for part in path.split("/") if path else ():
            found = self.names(node.id).get(part)
            if found is None or found.kind != _TREE:
                raise SourceFormatError("the commit has no such folder")
            node = found
        return self.names(node.id)

    def names(self, tree: str) -> Mapping[str, Node]:
        """Return the names in one tree object."""
        kept = self._kept.get(tree)
        if kept is not None:
            self._kept.move_to_end(tree)
            return kept
        kind, body = self._bodies.body(tree, _MAX_TREE_BYTES)
        if kind != "tree":
            raise SourceFormatError(f"expected a tree, found a {kind}")
        made = dict(_nodes(body, len(tree) // 2))
        self._kept[tree] = made
        self._names += len(made) + 1
        while self._names > _KEPT_NAMES and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._names -= len(dropped) + 1
        return made

    def sizes(self, ids: Sequence[str]) -> list[int]:
        """Return the sizes of blobs, −1 for one that is not there."""
        return [found[1] if found and found[0] == "blob" else -1 for found in self._headers.headers(ids)]

    def blob(self, node: Node, limit: int) -> bytes:
        """Return the bytes of a file.

        Raises:
            SourceFormatError: It is no file, is missing, broken or larger.
        """
        if node.kind != _FILE:
            raise SourceFormatError("expected a regular file, found a link, submodule or folder")
        kind, body = self._bodies.body(node.id, limit)
        if kind != "blob":
            raise SourceFormatError(f"expected a file, found a {kind}")
        return body

    def copied(self, node: Node) -> IO[bytes]:
        """Return the bytes of a file as an open file without a name; a piece of it is held at a time.

        Raises:
            SourceFormatError: It is no file, is missing, broken or larger than :data:`MAX_COPIED_BYTES`.
        """
        if node.kind != _FILE:
            raise SourceFormatError("expected a regular file, found a link, submodule or folder")
        with ExitStack() as stack:
            file = stack.enter_context(tempfile.TemporaryFile())
            kind = self._bodies.copy(node.id, MAX_COPIED_BYTES, file)
            if kind != "blob":
                raise SourceFormatError(f"expected a file, found a {kind}")
            file.seek(0)
            stack.pop_all()  # whoever asked closes it
            return file

    def history(self, path: str) -> tuple[Change, ...]:
        """Return the last commits that changed a file, youngest first, at most three; empty where they are not there.

        All files are asked for in one pass, at the first call.
        """
        if self._history is None:
            try:
                self._history = self._changes()
            except (SourceFormatError, UnicodeDecodeError):
                self._history = {}  # a broken history is no reason to refuse the files
        return self._history.get(path, ())

    def _changes(self) -> dict[str, tuple[Change, ...]]:
        body = commands.run(
            self.located.git_dir, "log", "-z", "--format=%x01%H %cs", "--name-only", "--no-renames", "--no-ext-diff",
            "--no-textconv", "--diff-filter=AM", "-n", str(_MOST_COMMITS), "--end-of-options", self.located.commit,
            "--", *(f"*{suffix}" for suffix in self._suffixes), objects=self.located.objects,
        )  # fmt: skip
        found: dict[str, tuple[Change, ...]] = {}
        change: Change | None = None
        for token in body.split(b"\0"):
            word = token.lstrip(b"\n")
            if word.startswith(b"\x01"):
                commit, _, date = word[1:].decode("ascii").strip().partition(" ")
                # The oldest commit of a shallow clone seems to add every file.
                change = None if commit in self.located.shallow else Change(commit, _checked(date))
            elif word and change is not None:
                path = word.decode("utf-8", "surrogateescape")
                known = found.get(path, ())
                if len(known) < 3:
                    found[path] = (*known, change)
        return found


def _checked(date: str) -> str:
    try:
        return datetime.strptime(date[:10], "%Y-%m-%d").date().isoformat()
    except ValueError:
        return "unknown"


def _nodes(body: bytes, width: int) -> Iterator[tuple[str, Node]]:
    """Take a tree object apart.

    Raises:
        SourceFormatError: It ends in the middle of a name, or a name leads elsewhere.
    """
    place = 0
    while place < len(body):
        end = body.find(b"\0", place)
        mode, blank, name = body[place:end].partition(b" ")
        place = end + 1 + width
        if end < 0 or not blank or place > len(body):
            raise SourceFormatError("expected a tree object, found one that is broken")
        kind = _KINDS.get(mode.decode("ascii", "replace").lstrip("0"), "other")
        yield name.decode("utf-8", "surrogateescape"), Node(kind, body[end + 1 : place].hex())


@dataclass(frozen=True)
class GitTree(Tree):
    """A commit of a git repository; what is asked of it is read from objects, never from files."""

    objects: Objects = field(kw_only=True)

    def walk(self, prune: set[str] | None = None) -> Iterator[Listing]:
        """Yield the folders of the commit, as :meth:`kb.importers.tree.Tree.walk` does.

        Raises:
            SourceUnavailableError: The commit has no tree that can be read.
            SourceFormatError: It spells out more files or folders than are allowed.
        """
        stack = [""]
        files = folders = 0
        while stack:
            path = stack.pop()
            if prune and any(path == each or path.startswith(f"{each}/") for each in prune):
                continue
            listing, inner = self._list(path)
            files += len(listing.files)
            folders += 1
            if files > MAX_FILES or folders + len(stack) > MAX_FOLDERS or path.count("/") > _MOST_DEPTH:
                raise SourceFormatError(
                    f"expected at most {MAX_FILES:,} files and {MAX_FOLDERS:,} folders, {_MOST_DEPTH} deep, in a commit"
                )
            yield listing
            stack.extend(reversed(inner))

    def _list(self, path: str) -> tuple[Listing, list[str]]:
        try:
            names = self.objects.folder(path)
        except SourceFormatError as error:
            if not path:
                raise SourceUnavailableError(f"cannot read the commit: {error.message}") from error
            return Listing(path, (), ((path, f"cannot be listed: {error.message}"),)), []
        files: list[tuple[str, str]] = []
        folders: list[str] = []
        left_out: list[tuple[str, str]] = []
        for name, node in names.items():
            place = f"{path}/{name}" if path else name
            if "/" in name or name in ("", ".", ".."):
                left_out.append((place, "its name leads elsewhere"))
            elif node.kind == _TREE:
                if not name.startswith(".") and name not in SKIPPED_FOLDERS:
                    folders.append(place)
            elif node.kind == _FILE:
                files.append((place, node.id))
            else:
                left_out.append((place, _REASONS.get(node.kind, "expected a file, found something of another mode")))
        found = [
            SourceFile(place, size)
            for (place, _), size in zip(files, self.objects.sizes([each for _, each in files]), strict=True)
        ]
        found.sort(key=lambda each: each.path)
        return Listing(path, tuple(found), tuple(sorted(left_out))), sorted(folders)

    def _node(self, path: str) -> Node:
        fault = unsafe_path(path)
        if fault is not None:
            raise SourceFormatError(f"the path leads out of the source: {fault}")
        folder, _, name = path.rpartition("/")
        node = self.objects.folder(folder).get(name)
        if node is None:
            raise SourceFormatError("the commit has no such file")
        return node

    def read(self, path: str, *, limit: int = MAX_FILE_BYTES) -> bytes:
        """Read one file of the commit.

        Raises:
            SourceFormatError: There is none of this path, or it is no regular file, missing, broken or larger.
        """
        return self.objects.blob(self._node(path), limit)

    def open(self, path: str) -> IO[bytes]:
        """Copy one file of the commit into a file without a name and open that: git gives an object only as a whole.

        Raises:
            SourceFormatError: There is none of this path, or it is no regular file, missing or broken, or larger than
                a source may be.
        """
        return self.objects.copied(self._node(path))

    def head(self, path: str, most: int = 4096) -> bytes:
        """Return the first bytes of a file; nothing where it cannot be read."""
        try:
            node = self._node(path)
            if self.objects.sizes([node.id])[0] <= MAX_FILE_BYTES:
                return self.objects.blob(node, MAX_FILE_BYTES)[:most]
            with self.objects.copied(node) as file:
                return file.read(most)
        except SourceFormatError:
            return b""

    def inside(self, path: str) -> Path:
        """Refuse: a commit's files do not lie on disk.

        Raises:
            SourceFormatError: Always.
        """
        raise SourceFormatError(f"{path}: a commit's files do not lie on disk")

    def exists(self, path: str) -> bool:
        """Tell whether the commit has a regular file of this path."""
        try:
            return self._node(path).kind == _FILE
        except SourceFormatError:
            return False

    def license_text(self, folder: str) -> bytes | None:
        """Return the beginning of the license file in a folder, or None where there is none."""
        try:
            names = self.objects.folder(folder)
        except SourceFormatError:
            return None
        for name in sorted(names):
            if LICENSE_FILE.match(name) and names[name].kind == _FILE:
                return self.head(f"{folder}/{name}" if folder else name, 65_536)
        return None

    def blob_of(self, path: str) -> str | None:
        """Return the id of a file's object, or None."""
        try:
            return self._node(path).id
        except SourceFormatError:
            return None


_REASONS = {_LINK: "a link: links are not followed", _MODULE: "a submodule: not followed"}
