"""Commits on a branch that nobody has checked out: the working tree, the index and HEAD stay as they are."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kb.errors import ConfigError, HistoryError
from kb.store.history import has_commits, opened
from kb.store.locks import locked

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_S = 120.0
_FLUSHED = ("-c", "core.fsync=objects,reference", "-c", "core.fsyncMethod=fsync")
"""What is acknowledged is on the disk, also if the machine loses power; an older git flushes its packs anyway."""


@dataclass(frozen=True)
class Committed:
    """One new commit."""

    branch: str
    commit: str
    """40 hexadecimal digits."""
    paths: tuple[str, ...]
    """Relative to the repository."""


class Branch:
    """One branch, held against all others who would commit to it through this class."""

    def __init__(self, top: Path, prefix: str, name: str, tip: str | None) -> None:
        self._top = top
        self._prefix = prefix
        self.name = name
        self.tip = tip
        """Its last commit; None if the branch does not exist yet."""

    def names(self, folder: str) -> list[str]:
        """List what stands in a folder on the branch.

        Args:
            folder: Relative to the folder that was opened, with ``/``.

        Returns:
            Names, sorted; empty if there is no such folder.
        """
        base = self.tip or "HEAD"
        done = _git(self._top, "ls-tree", "-z", "--name-only", base, f"{self._prefix}{folder}/", check=False)
        found = [one.rpartition("/")[2] for one in done.decode("utf-8", "replace").split("\0") if one]
        return sorted(found)

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes on the branch, or None.

        Args:
            path: As for :meth:`names`.
        """
        base = self.tip or "HEAD"
        done = _git(self._top, "cat-file", "blob", f"{base}:{self._prefix}{path}", check=False)
        return done or None

    def last_commit_of(self, folder: str) -> str | None:
        """Return the last commit that touched a folder, or None."""
        base = self.tip or "HEAD"
        done = _git(self._top, "log", "-1", "--format=%H", base, "--", f"{self._prefix}{folder}", check=False)
        return done.decode("ascii", "replace").strip() or None

    def commit(self, files: Mapping[str, bytes], *, message: str, author: str) -> Committed:
        """Add files in one commit.

        Args:
            files: Path → bytes, as for :meth:`names`.
            message: Of the commit.
            author: Name of who wrote them.

        Raises:
            HistoryError: Git could not write it; then nothing was changed.
        """
        base = self.tip or _git(self._top, "rev-parse", "HEAD").decode("ascii").strip()
        paths = {f"{self._prefix}{path}": body for path, body in files.items()}
        stream = _stream(self.name, base, paths, message=message, author=author)
        made = _git(self._top, *_FLUSHED, "fast-import", "--quiet", "--done", "--date-format=now", given=stream)
        commit = made.decode("ascii", "replace").strip()
        now = _git(self._top, "rev-parse", "--verify", f"refs/heads/{self.name}").decode("ascii").strip()
        if not commit or now != commit:
            raise HistoryError(f"git did not move the branch {self.name}", hint="git fsck; then try again")
        self.tip = commit
        return Committed(self.name, commit, tuple(paths))


@contextmanager
def held(folder: Path, name: str, *, wait_s: float = 60.0) -> "Iterator[Branch]":
    """Hold a branch of the repository around a folder.

    Args:
        folder: Paths are relative to it; inside a work tree.
        name: Of the branch; it is made at the first commit, from what is checked out.
        wait_s: How long to wait for others, in seconds.

    Raises:
        ConfigError: The name is none, or the branch is checked out somewhere.
        HistoryError: There is no git, no repository or no commit yet.
    """
    with opened(folder) as repository:
        top = Path(str(repository.working_tree_dir)).resolve()
        common = Path(repository.common_dir)
        if not has_commits(repository):
            raise HistoryError(f"{top} has no commit yet", hint="git add . && git commit, then submit again")
    check_name(top, name)
    inside = folder.resolve().relative_to(top).as_posix()
    prefix = "" if inside == "." else f"{inside}/"
    with locked(common / "kb-submissions.lock", wait_s=wait_s):
        _refuse_checked_out(top, name)
        tip = _git(top, "rev-parse", "--verify", "--quiet", f"refs/heads/{name}", check=False).decode("ascii").strip()
        yield Branch(top, prefix, name, tip or None)


def check_name(top: Path, name: str) -> None:
    """Refuse what is no name of a branch.

    Args:
        top: A folder of the repository.
        name: The name.

    Raises:
        ConfigError: It is none.
    """
    fine = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,100}", name) is not None
    if not fine or name == "HEAD" or not _git(top, "check-ref-format", "--branch", name, check=False):
        raise ConfigError(f"{name[:80]!r} is no name of a branch", hint="--branch submissions")


def _refuse_checked_out(top: Path, name: str) -> None:
    """Refuse a branch that a working tree shows: its files would differ from its commit at once."""
    listed = _git(top, "worktree", "list", "--porcelain").decode("utf-8", "replace")
    if f"branch refs/heads/{name}" in listed.splitlines():
        raise ConfigError(
            f"the branch {name} is checked out, and submissions never touch a working tree",
            hint="git switch to another branch, or submit to one of another name",
        )


def _git(top: Path, *arguments: str, given: bytes = b"", check: bool = True) -> bytes:
    """Run git in a repository, with nothing of the environment that would point it elsewhere.

    Raises:
        HistoryError: It failed, and ``check`` is set.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(top), *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - fixed commands; names were checked
            command,
            input=given,
            capture_output=True,
            env={**env, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
            timeout=_LONGEST_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HistoryError(f"git {arguments[0]} failed: {error}", hint="git --version") from error
    if done.returncode == 0:
        return done.stdout
    if not check:
        return b""
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    fatal = next((line for line in said if line.startswith(("fatal:", "error:"))), said[-1] if said else "it failed")
    raise HistoryError(f"git could not write: {fatal[:300]}", hint="git status; check free space and permissions")


def _stream(branch: str, base: str, files: Mapping[str, bytes], *, message: str, author: str) -> bytes:
    """Return one commit in the form that ``git fast-import`` reads."""
    who = _identity(author)
    parts = [
        b"feature done\n",
        f"commit refs/heads/{branch}\nmark :1\nauthor {who} now\ncommitter {who} now\n".encode(),
        _data(message.encode("utf-8", "replace")),
        f"from {base}\n".encode("ascii"),
    ]
    for path, body in sorted(files.items()):
        parts += [f"M 100644 inline {_quoted(path)}\n".encode("utf-8", "surrogateescape"), _data(body)]
    parts.append(b"get-mark :1\ndone\n")
    return b"".join(parts)


def _data(body: bytes) -> bytes:
    return f"data {len(body)}\n".encode("ascii") + body + b"\n"


def _quoted(path: str) -> str:
    marks: Sequence[tuple[str, str]] = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"))
    for plain, marked in marks:
        path = path.replace(plain, marked)
    return f'"{path}"'


def _identity(author: str) -> str:
    """Return an author without an address: a token has a name and nothing else."""
    kept = "".join(one for one in author if one.isprintable() and one not in "<>")
    return f"{' '.join(kept.split())[:80] or 'unknown'} <>"
