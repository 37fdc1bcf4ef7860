"""Makes git repositories for tests, also ones that no git would make."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

MIT = (
    "MIT License\n\nCopyright (c) 2025 The Authors\n\nPermission is hereby granted, free of charge, to any person\n"
    "The above copyright notice and this permission notice shall be included\n"
)
ENVIRONMENT = {
    **{name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ},
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
}


def git(place: Path, *words: str, given: bytes = b"") -> str:
    """Run git in a repository and return what it says."""
    done = subprocess.run(
        ["git", "-C", str(place), *words], input=given, capture_output=True, check=True, env=ENVIRONMENT
    )
    return done.stdout.decode().strip()


def commit(place: Path, files: Mapping[str, bytes | tuple[str, bytes]], *, day: int = 1) -> str:
    """Put files into a bare repository as one commit on ``main``; the first call makes the repository.

    Args:
        place: Where the repository is, or shall be.
        files: Path → bytes, or mode and bytes; all files of the commit.
        day: Of January 2025.

    Returns:
        The id of the commit.
    """
    if not place.exists():
        place.mkdir(parents=True)
        git(place, "init", "--quiet", "--bare", "--initial-branch=main")
    parent = subprocess.run(
        ["git", "-C", str(place), "rev-parse", "--verify", "-q", "main"], capture_output=True, env=ENVIRONMENT
    )
    when = 1735689600 + 86400 * (day - 1)
    stream = [b"commit refs/heads/main\ncommitter A <a@example.org> %d +0000\ndata 1\nx\n" % when]
    if parent.returncode == 0:
        stream.append(b"from refs/heads/main^0\n")
    stream.append(b"deleteall\n")
    for path, given in files.items():
        mode, body = given if isinstance(given, tuple) else ("100644", given)
        stream.append(b'M %s inline "%s"\ndata %d\n%s\n' % (mode.encode(), path.encode(), len(body), body))
    git(place, "fast-import", "--quiet", given=b"".join(stream))
    return git(place, "rev-parse", "main")


def tree_of(place: Path, entries: list[tuple[str, bytes, str]]) -> str:
    """Write a tree object as it is, with names that git itself would refuse; returns its id."""
    body = b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(found) for mode, name, found in entries)
    return git(place, "hash-object", "-t", "tree", "-w", "--literally", "--stdin", given=body)


def commit_tree(place: Path, tree: str) -> str:
    """Make a commit of a tree the head of ``main``."""
    made = git(
        place, "hash-object", "-t", "commit", "-w", "--literally", "--stdin",
        given=f"tree {tree}\nauthor A <a@example.org> 1735689600 +0000\n"
              f"committer A <a@example.org> 1735689600 +0000\n\nx\n".encode(),
    )  # fmt: skip
    git(place, "update-ref", "refs/heads/main", made)
    return made
