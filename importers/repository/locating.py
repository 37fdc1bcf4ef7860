"""Finds the objects of a repository and the commit that is meant, by reading files; or fetches both from an address."""

import os
import re
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kb.errors import SourceFormatError, SourceUnavailableError
from kb.importers.repository import commands

MAX_FETCH_BYTES = 2 << 30
"""All that a fetch may put on this machine's disk."""
MAX_FETCH_S = 1800.0
DEPTH = 50
"""Commits that are fetched: enough to say what changed lately; older history is said to be unknown."""
_BLOB_LIMIT = "8m"
_MOST_REFS_BYTES = 64 << 20
_MOST_SHALLOW_BYTES = 4 << 20
_ID = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_SHORT_ID = re.compile(r"[0-9a-f]{7,64}")
_REF = re.compile(r"(?!.*(\.\.|//|@\{|\.lock(/|$)))[A-Za-z0-9_][A-Za-z0-9_.\-/+]*(?<![./])")
_WEB = re.compile(r"https://(?:[^@/\s]*@)?[A-Za-z0-9][\w.\-]*(?::\d+)?/[^\s?#]+")
_SSH = re.compile(
    r"ssh://(?:[\w.\-]+@)?[A-Za-z0-9][\w.\-]*(?::\d+)?/[^\s?#]+|[\w.][\w.\-]*@[A-Za-z0-9][\w.\-]*:(?!/{2})[^\s\-][^\s]*"
)
_OTHER = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*(://|::)")


@dataclass(frozen=True)
class Located:
    """A repository whose objects can be read."""

    git_dir: Path
    """Bare repository of our own."""
    objects: Path
    commit: str
    shallow: frozenset[str]
    """Commits whose parents are not there."""
    url: str | None
    """What its configuration or the user calls its origin; may hold a secret."""


def split(source: str) -> tuple[str, str | None]:
    """Take ``ADDRESS@COMMIT`` apart; the part behind the last ``@`` counts only where it follows the last ``/``.

    Args:
        source: As the user writes it.

    Returns:
        The address, and the commit, branch or tag, or None.
    """
    address, at, wanted = source.rpartition("@")
    if at and "/" not in wanted and ":" not in wanted and wanted and _is_place(address):
        return address, wanted
    return source, None


def _is_place(address: str) -> bool:
    return "/" in address or ":" in address or Path(address).is_dir()


def is_address(source: str) -> bool:
    """Tell whether a source is the address of a repository elsewhere, also one of a kind that is refused."""
    return bool(_WEB.fullmatch(source) or _SSH.fullmatch(source) or _OTHER.match(source) or source.endswith(".git"))


def git_dir_of(folder: Path) -> Path | None:
    """Return the folder of a repository's own files: of a bare one, a working tree, or a linked working tree.

    Args:
        folder: The top of a working tree, or a bare repository.

    Returns:
        None where the folder is neither.

    Raises:
        SourceFormatError: It has a ``.git`` that leads somewhere that does not lead back.
    """
    inner = folder / ".git"
    try:
        mode = inner.lstat().st_mode
    except OSError:
        return folder if _looks_bare(folder) else None
    if stat.S_ISDIR(mode):
        return inner if _looks_bare(inner) else None
    if stat.S_ISREG(mode):
        return _linked(inner)
    raise SourceFormatError(f"{inner.name}: expected a folder or file, found a link or device")


def _looks_bare(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").exists()


def _small(path: Path, limit: int = 4096) -> str | None:
    """Return the text of a small regular file, never through a link; None where there is none."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(path, flags)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        body = file.read(limit + 1)
    if len(body) > limit:
        raise SourceFormatError(f"{path.name}: expected at most {limit:,} bytes")
    return body.decode("utf-8", "replace")


def _linked(file: Path) -> Path:
    """Follow the ``.git`` file of a linked working tree, if the other side names this very file."""
    text = (_small(file) or "").strip()
    place = file.parent / text.removeprefix("gitdir:").strip()
    back = (_small(place / "gitdir") or "").strip() if text.startswith("gitdir:") else ""
    if not back or (place / back).resolve() != file.resolve():
        raise SourceFormatError(
            ".git leads to a repository that does not lead back: a submodule or a moved working tree",
            hint="import the repository itself",
        )
    return place.resolve()


def _common(git_dir: Path) -> Path:
    text = (_small(git_dir / "commondir") or "").strip()
    return (git_dir / text).resolve() if text else git_dir


def _objects(common: Path) -> Path:
    place = common / "objects"
    if place.is_symlink() or not place.is_dir():
        raise SourceFormatError("objects: expected a folder of the repository's own, found a link or nothing")
    for name in ("info/alternates", "info/http-alternates"):
        if (place / name).exists() or (place / name).is_symlink():
            raise SourceFormatError(
                f"objects/{name}: the repository borrows objects from elsewhere, which are not read",
                hint="git repack -a -d, then remove that file; or import the address it was cloned from",
            )
    return place


def _id_of_ref(git_dir: Path, common: Path, name: str) -> str | None:
    """Look up one ref: a file, else a line of ``packed-refs``."""
    for place in (git_dir, common):
        text = (_small(place / name) or "").strip()
        if _ID.fullmatch(text):
            return text
    packed = _small(common / "packed-refs", _MOST_REFS_BYTES) or ""
    found = re.search(rf"(?m)^([0-9a-f]{{40,64}}) {re.escape(name)}$", packed)
    return found.group(1) if found else None


def _head(git_dir: Path, common: Path) -> str:
    text = (_small(git_dir / "HEAD") or "").strip()
    if _ID.fullmatch(text):
        return text
    name = text.removeprefix("ref:").strip()
    if name == "refs/heads/.invalid":
        raise SourceFormatError("HEAD: the repository keeps its refs as a reftable, which is not read")
    if not text.startswith("ref:") or not _REF.fullmatch(name):
        raise SourceFormatError("HEAD: expected a commit or the name of a branch")
    found = _id_of_ref(git_dir, common, name)
    if found is None:
        raise SourceUnavailableError(f"the repository has no commit on {name}", hint="name one: PATH@COMMIT")
    return found


def _named(git_dir: Path, common: Path, wanted: str) -> str:
    if wanted == "HEAD":
        return _head(git_dir, common)
    if _REF.fullmatch(wanted):
        for prefix in ("refs/heads/", "refs/tags/", "refs/remotes/origin/", "refs/remotes/"):
            found = _id_of_ref(git_dir, common, prefix + wanted)
            if found is not None:
                return found
    if _SHORT_ID.fullmatch(wanted):
        return wanted
    raise SourceUnavailableError(
        f"the repository has no commit, branch or tag {wanted[:80]!r}", hint="git branch -a; git tag"
    )


def _borrowing(scratch: Path, object_format: str) -> Path:
    """Make an empty bare repository of our own."""
    place = Path(tempfile.mkdtemp(prefix="git-", dir=scratch)) / "own.git"
    commands.run(place, "init", "--quiet", "--bare", "--template=", f"--object-format={object_format}", str(place))
    return place


def local(folder: Path, scratch: Path, wanted: str | None) -> Located | None:
    """Find a repository on this machine; nothing of it is run and its configuration is not obeyed.

    Args:
        folder: A bare repository, or the top of a working tree.
        scratch: Where to put a small repository of our own.
        wanted: Commit, branch or tag; None for HEAD.

    Returns:
        None where the folder is no repository.

    Raises:
        SourceUnavailableError: It has no such commit.
        SourceFormatError: It borrows objects or is broken.
    """
    git_dir = git_dir_of(folder)
    if git_dir is None:
        return None
    common = _common(git_dir)
    objects = _objects(common)
    named = _named(git_dir, common, wanted) if wanted else _head(git_dir, common)
    own = _borrowing(scratch, "sha256" if len(named) == 64 else "sha1")
    shallow = _small(common / "shallow", _MOST_SHALLOW_BYTES) or ""
    kept = [line for line in shallow.split() if _ID.fullmatch(line)]
    if kept:
        (own / "shallow").write_text("".join(f"{line}\n" for line in kept), encoding="ascii")
    return Located(own, objects, _commit(own, objects, named), frozenset(kept), _remote(own, common))


def _commit(own: Path, objects: Path, named: str) -> str:
    try:
        found = commands.run(
            own, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{named}^{{commit}}", objects=objects
        )
    except SourceFormatError as error:
        raise SourceUnavailableError(f"the repository has no commit {named[:80]}, or it is broken") from error
    return found.decode("ascii", "replace").strip()


def _remote(own: Path, common: Path) -> str | None:
    """Return the address of ``origin``: read as text, includes not followed."""
    config = common / "config"
    if config.is_symlink() or not config.is_file() or config.stat().st_size > 1 << 20:
        return None
    with suppress(SourceFormatError):
        said = commands.run(own, "config", "--no-includes", "--file", str(config), "--get", "remote.origin.url")
        return said.decode("utf-8", "replace").strip() or None
    return None


def remote(address: str, scratch: Path, wanted: str | None) -> Located:
    """Fetch a repository by its address, without a working tree.

    Args:
        address: ``https://``, ``ssh://`` or ``user@host:path``.
        scratch: Where it goes.
        wanted: Whole id of a commit, branch or tag; None for the branch that the other side calls HEAD.

    Raises:
        SourceUnavailableError: It cannot be reached, has no such commit, is too large or takes too long; or the
            address is of another kind.
    """
    scheme = "https" if _WEB.fullmatch(address) else "ssh" if _SSH.fullmatch(address) else None
    if scheme is None:
        raise SourceUnavailableError(
            f"expected a repository's address as https://, ssh:// or user@host:path, found {address[:100]!r}"
        )
    if wanted is not None and not _REF.fullmatch(wanted):
        raise SourceUnavailableError(f"expected a commit, branch or tag, found {wanted[:80]!r}")
    own = _borrowing(scratch, "sha1")
    arguments = (
        "fetch", "--quiet", f"--depth={DEPTH}", "--no-tags", "--no-recurse-submodules",
        f"--filter=blob:limit={_BLOB_LIMIT}", "--end-of-options", address, wanted or "HEAD",
    )  # fmt: skip
    process = commands.start(own, *arguments, settings=(f"protocol.{scheme}.allow=always",))
    complaint = _watched(process, own)
    if complaint is not None:
        raise SourceUnavailableError(f"cannot fetch {_shown(address)}: {complaint}")
    fetched = (_small(own / "FETCH_HEAD", _MOST_SHALLOW_BYTES) or "").split()
    if not fetched or not _ID.fullmatch(fetched[0]):
        raise SourceUnavailableError(f"cannot fetch {_shown(address)}: nothing came")
    shallow = frozenset((_small(own / "shallow", _MOST_SHALLOW_BYTES) or "").split())
    # A second repository reads it: this one remembers where missing objects could be asked for.
    reading = _borrowing(scratch, "sha1")
    if shallow:
        (reading / "shallow").write_text("".join(f"{line}\n" for line in sorted(shallow)), encoding="ascii")
    objects = own / "objects"
    return Located(reading, objects, _commit(reading, objects, fetched[0]), shallow, address)


def _shown(address: str) -> str:
    return re.sub(r"//[^@/]*@", "//", address)[:200]


def _watched(process: "subprocess.Popen[bytes]", place: Path) -> str | None:
    """Wait for a fetch; end it where it takes too long or brings too much. Returns what went wrong, or None."""
    began = time.monotonic()
    try:
        while True:
            try:
                _, stderr = process.communicate(timeout=0.5)
            except subprocess.TimeoutExpired:
                if time.monotonic() - began > MAX_FETCH_S:
                    return f"it took more than {MAX_FETCH_S:.0f} s"
                if sum(_sizes(place)) > MAX_FETCH_BYTES:
                    return f"it has more than {MAX_FETCH_BYTES:,} bytes"
                continue
            return re.sub(r"//[^@/ ]*@", "//", commands.said(stderr)) if process.returncode else None
    finally:
        commands.end(process)


def _sizes(place: Path) -> Iterator[int]:
    for folder, _, names in os.walk(place):
        for name in names:
            with suppress(OSError):
                yield (Path(folder) / name).lstat().st_size
