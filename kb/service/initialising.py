"""Make a new knowledge base in a new git repository."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kb.config import MARKER, is_root
from kb.errors import ConfigError
from kb.store.history import reason

if TYPE_CHECKING:
    from git import Actor, Repo

# The marker comes last: a folder that was cut off half-way is no knowledge base.
_FILES = {
    ".gitignore": ".kb/\n__pycache__/\n*.py[cod]\n",
    # The digest of an entry is over bytes, so no system may rewrite line ends.
    ".gitattributes": "entries/** -text\n",
    "entries/.gitkeep": "",
    "README.md": (
        "# Knowledge base\n\nVerified GPU kernels, memory-allocation strategies and communication schemes, kept with"
        " kernel-kb.\n\n```\nkb add DIR --id kernel/OPERATOR/SLUG   # add an entry\nkb search WORDS"
        "                        # find one\nkb check                               # check all of them\n```\n"
    ),
    MARKER: "# This file marks a knowledge base of kernel-kb; the entries are in entries/.\nschema = 1\n",
}


@dataclass(frozen=True)
class Initialised:
    """What ``init`` did."""

    path: Path
    state: Literal["made", "already"]
    commit: str | None
    """First commit; None if there was one already or git is missing."""
    note: str | None = None
    """What the user should know."""


def _author(repository: "Repo") -> "Actor":
    """Return the user's identity, or a neutral one where git knows none."""
    from git import Actor

    # Asked of git itself: GitPython does not look everywhere where git does.
    given = [
        os.environ.get(f"GIT_AUTHOR_{part.upper()}") or repository.git.config(f"user.{part}", with_exceptions=False)
        for part in ("name", "email")
    ]
    if all(given):
        return Actor(str(given[0]), str(given[1]))
    return Actor("kernel-kb", "kernel-kb@localhost")


def _commit(path: Path) -> tuple[str | None, str | None]:
    try:
        import git
    except ImportError:
        return None, "git is not installed: there is no history, so older versions of entries will not be kept"
    try:
        with git.Repo.init(path, initial_branch="main") as repository:
            repository.index.add(sorted(_FILES))
            author = _author(repository)
            made = repository.index.commit(
                "New knowledge base", author=author, committer=author, skip_hooks=True, parent_commits=[]
            )
            return made.hexsha, None
    except (git.GitError, OSError, ValueError) as error:
        raise ConfigError(f"git cannot make a repository in {path}: {reason(error)}", hint="git --version") from error


def init(folder: Path) -> Initialised:
    """Make a knowledge base: a git repository with ``kb.toml``, ``entries/`` and a first commit.

    Args:
        folder: A new or an empty folder.

    Returns:
        Where it is, and whether it was there already; then nothing is changed.

    Raises:
        ConfigError: The folder holds something else, or cannot be written.
    """
    path = folder.expanduser().resolve()
    if is_root(path):
        return Initialised(path, "already", None, "it is a knowledge base already; nothing was changed")
    try:
        made = not path.exists()
        if not made and (not path.is_dir() or any(path.iterdir())):
            raise ConfigError(
                f"expected a new or an empty folder, found something in {path}", hint="kb init NEW_FOLDER"
            )
        with _undone(path, whole=made):
            (path / "entries").mkdir(parents=True)
            for name, text in _FILES.items():
                (path / name).write_text(text, encoding="utf-8")
            commit, note = _commit(path)
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}", hint="choose a folder that can be written"
        ) from error
    return Initialised(path, "made", commit, note)


@contextmanager
def _undone(path: Path, *, whole: bool) -> Iterator[None]:
    """Remove what was made below a folder that was new or empty if the rest cannot be made."""
    try:
        yield
    except BaseException:
        for made in [path] if whole else list(path.iterdir()):
            if made.is_dir():
                shutil.rmtree(made, ignore_errors=True)
            else:
                made.unlink(missing_ok=True)
        raise
