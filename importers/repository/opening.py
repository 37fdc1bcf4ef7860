"""Opens a commit as a source, and says which commit a folder inside a working tree belongs to."""

import re
from pathlib import Path

from kb.errors import KbError, SourceUnavailableError
from kb.importers.repository import locating
from kb.importers.repository.tree import GitTree, Objects
from kb.importers.tree import Origin, with_manifest

CODE = (".py", ".cu", ".cuh", ".hip", ".json", ".toml", ".yml", ".yaml", ".csv", ".parquet")
"""Suffixes of the files whose history is looked up."""


def opened(source: str, scratch: Path, wanted: str | None) -> GitTree | None:
    """Open a repository at a commit.

    Args:
        source: Path of a bare repository or of the top of a working tree, or an address; with ``@COMMIT`` or without.
        scratch: Folder for what is fetched and for a small repository of our own; the caller removes it.
        wanted: Commit, branch or tag, where ``source`` does not end in one.

    Returns:
        None where it is neither a repository nor an address.

    Raises:
        SourceUnavailableError: It cannot be reached, or has no such commit.
        SourceFormatError: It is broken, or borrows objects from elsewhere.
    """
    address, behind = (source, None) if Path(source).exists() else locating.split(source)
    wanted = behind or wanted
    place = Path(re.sub(r"^file://", "", address))
    if place.is_dir():
        located = locating.local(place.resolve(), scratch, wanted)
        if located is None and behind is not None:
            raise SourceUnavailableError(f"{address} is no git repository, so it has no {behind!r}")
    elif locating.is_address(address) and not address.startswith("file://"):
        located = locating.remote(address, scratch, wanted)
    elif address.startswith("file://"):
        raise SourceUnavailableError(f"no repository {address}")
    else:
        return None
    if located is None:
        return None
    name = slug_of(located.url) or place.resolve().name.removesuffix(".git") or "repository"
    base = Origin(name, "", located.commit, public(located.url))
    return with_manifest(GitTree(located.git_dir, base, objects=Objects(located, suffixes=CODE)))


def origin_of(folder: Path, scratch: Path) -> Origin | None:
    """Say which repository and commit a folder inside a working tree belongs to, or None.

    Args:
        folder: Any folder.
        scratch: As for :func:`opened`.
    """
    for top in (folder, *folder.parents):
        if not (top / ".git").exists():
            continue
        try:
            located = locating.local(top, scratch, None)
        except KbError:
            return None  # what cannot be told is not told; the files themselves can be read all the same
        if located is None:
            return None
        inside = folder.relative_to(top).as_posix()
        name = slug_of(located.url) or top.name
        return Origin(name, "" if inside == "." else inside, located.commit, public(located.url))
    return None


def slug_of(url: str | None) -> str | None:
    """Return ``owner/name`` of an address, or None."""
    found = re.search(r"[:/]([\w.\-]+/[\w.\-]+?)(?:\.git)?/?$", url or "")
    return found.group(1) if found else None


def public(url: str | None) -> str | None:
    """Return an address without a user's name or secret, or None where it is no web address."""
    found = re.fullmatch(r"(https?://)(?:[^@/]*@)?([^?#]+)(?:[?#].*)?", url or "")
    return f"{found.group(1)}{found.group(2).removesuffix('.git')}" if found else None
