"""Older versions of an entry, from git: which commit has which version, its files, and what changed between two."""

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kb.errors import EntryNotFoundError, HistoryError
from kb.store import content, layout
from kb.store.digest import entry_digest
from kb.store.files import parse_facts

if TYPE_CHECKING:
    from git import Commit, Repo, Tree

_NO_GIT = "install git: older versions of an entry are kept there and nowhere else"
_NO_REPOSITORY = "git init, then commit: older versions are kept in git"
_MAX_DIFF_LINES = 5000


@dataclass(frozen=True)
class Version:
    """One version of an entry."""

    version: int
    commit: str | None
    """The last commit that has it; None for files that are not committed."""
    date_utc: str | None
    author: str | None
    subject: str | None
    """First line of the commit's message."""
    digest: str | None
    """None if today's format cannot read that version."""
    title: str


@dataclass(frozen=True)
class Snapshot:
    """The files of one version."""

    id: str
    version: int
    commit: str | None
    facts: Mapping[str, object]
    readme: str
    files: Mapping[str, bytes]
    """Facts, readme and candidate files by name."""


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace")


def _version_of(facts: Mapping[str, object]) -> int | None:
    version = facts.get("version")
    return version if isinstance(version, int) and not isinstance(version, bool) else None


def _title_of(facts: Mapping[str, object]) -> str:
    return str(facts.get("title", ""))


def digest_of(files: Mapping[str, bytes]) -> str | None:
    """Return the entry digest of a version's files, or None if today's format cannot read them.

    Args:
        files: Name → bytes, facts among them.
    """
    model, _, _ = parse_facts(files.get(layout.FACTS, b""))
    if model is None:
        return None
    return entry_digest(model, {name: body for name, body in files.items() if layout.is_candidate(name)})


@contextmanager
def opened(folder: Path) -> "Iterator[Repo]":
    """Open the git repository around a folder.

    Args:
        folder: A folder inside its work tree.

    Raises:
        HistoryError: Git is not installed, or the folder is in no repository; the hint says how to get it.
    """
    try:
        import git
    except ImportError as error:
        raise HistoryError("git is not installed, so there are no older versions", hint=_NO_GIT) from error
    try:
        repository = git.Repo(folder, search_parent_directories=True)
    except (git.InvalidGitRepositoryError, git.NoSuchPathError) as error:
        raise HistoryError(f"{folder} is in no git repository", hint=_NO_REPOSITORY) from error
    try:
        if repository.bare or repository.working_tree_dir is None:
            raise HistoryError(f"{folder} is in a git repository without files", hint=_NO_REPOSITORY)
        yield repository
    except git.GitCommandNotFound as error:
        raise HistoryError("git is not installed, so there are no older versions", hint=_NO_GIT) from error
    except (git.GitError, ValueError, OSError) as error:
        raise HistoryError(f"git cannot read {folder}: {reason(error)}", hint="git status") from error
    finally:
        repository.close()


def reason(error: Exception) -> str:
    """Return what git itself said, in one line.

    Args:
        error: As GitPython raised it.
    """
    said = str(getattr(error, "stderr", "")) or str(error)
    lines = [line.strip().removeprefix("stderr:").strip(" '") for line in said.splitlines()]
    said_why = [line for line in lines if line.startswith(("fatal:", "error:"))] or [line for line in lines if line]
    return said_why[0] if said_why else type(error).__name__


def has_commits(repository: "Repo") -> bool:
    """Tell whether anything is committed; whatever else keeps git from answering is an error, not an empty history.

    Args:
        repository: As :func:`opened` gave it.
    """
    code, _, said = repository.git.rev_parse(
        "--verify", "--quiet", "HEAD", with_extended_output=True, with_exceptions=False
    )
    if code not in (0, 1):
        raise ValueError(said or f"git rev-parse ended with {code}")
    return bool(code == 0)


def is_shallow(entries: Path) -> bool:
    """Tell whether git holds only the newest commits, so that older versions may be missing from a history.

    Args:
        entries: The ``entries/`` folder.

    Raises:
        HistoryError: Git is missing or cannot be read.
    """
    with opened(entries) as repository:
        return _shallow(repository)


def _shallow(repository: "Repo") -> bool:
    return (Path(repository.git_dir) / "shallow").is_file()


def relative(repository: "Repo", folder: Path) -> str:
    """Return a folder's path inside its repository, with ``/``.

    Args:
        repository: As :func:`opened` gave it.
        folder: A folder inside it.
    """
    return folder.resolve().relative_to(Path(str(repository.working_tree_dir)).resolve()).as_posix()


def tree_files(tree: "Tree") -> dict[str, bytes]:
    """Return the regular files of one entry's tree, small enough to be an entry's, records left out.

    Args:
        tree: The tree of the entry's folder in some commit.
    """
    files: dict[str, bytes] = {}
    for item in tree.traverse():
        blob_mode = getattr(item, "mode", 0)
        if getattr(item, "type", "") != "blob" or blob_mode & 0o170000 != 0o100000:  # links and submodules are no files
            continue
        name = str(item.path)[len(str(tree.path)) + 1 :]  # type: ignore[union-attr]
        if layout.file_fault(name) is None and not layout.is_evidence(name):
            stream = item.data_stream  # type: ignore[union-attr]
            if stream.size <= content.MAX_FILE_BYTES:
                files[name] = stream.read()
    return files


def tree_at(commit: "Commit", path: str) -> "Tree | None":
    """Return the tree of a folder in a commit, or None if it is not there.

    Args:
        commit: The commit.
        path: The folder inside the repository.
    """
    try:
        found = commit.tree.join(path)
    except KeyError:
        return None
    return found if found.type == "tree" else None


def _walk(repository: "Repo", path: str) -> "Iterator[tuple[Commit, Tree, dict[str, object]]]":
    if not has_commits(repository):
        return
    # All names at once: a walk that is given up half-way would leave its process and pipes open.
    for name in repository.git.rev_list("HEAD", "--", path).split():
        commit = repository.commit(name)
        tree = tree_at(commit, path)
        if tree is None:
            continue
        try:
            blob = tree.join(layout.FACTS)
        except KeyError:
            continue
        if blob.type != "blob" or blob.size > content.MAX_FACTS_BYTES:
            continue
        _, facts, _ = parse_facts(blob.data_stream.read())
        if _version_of(facts) is not None:
            yield commit, tree, facts


def _present(entries: Path, entry_id: str) -> Snapshot | None:
    folder = layout.folder_of(entries, entry_id)
    if not folder.is_dir():
        return None
    files = content.read(folder).files
    _, facts, _ = parse_facts(files.get(layout.FACTS, b""))
    version = _version_of(facts)
    if version is None:
        return None
    return Snapshot(entry_id, version, None, facts, _text(files.get(layout.README, b"")), files)


def versions(entries: Path, entry_id: str) -> tuple[Version, ...]:
    """Return all versions of an entry, newest first.

    Args:
        entries: The ``entries/`` folder.
        entry_id: Its id.

    Raises:
        EntryNotFoundError: Neither the files nor git know it.
        HistoryError: Git is missing or cannot be read.
    """
    present = _present(entries, entry_id)
    found: dict[int, Version] = {}
    with opened(entries) as repository:
        path = relative(repository, entries) + "/" + entry_id
        for commit, tree, facts in _walk(repository, path):
            version = _version_of(facts)
            if version is not None and version not in found:
                found[version] = _version(version, commit, tree, facts)
    if present is not None:
        committed = found.get(present.version)
        digest = digest_of(present.files)
        if committed is None or committed.digest != digest:
            title = _title_of(present.facts)
            found[present.version] = Version(present.version, None, None, None, "not committed", digest, title)
    if not found:
        raise EntryNotFoundError(f"no entry {entry_id!r}, now or in the past", hint="kb list")
    return tuple(found[version] for version in sorted(found, reverse=True))


def _version(version: int, commit: "Commit", tree: "Tree", facts: Mapping[str, object]) -> Version:
    subject = _text(commit.message.encode() if isinstance(commit.message, str) else commit.message)
    return Version(
        version=version,
        commit=commit.hexsha,
        date_utc=datetime.fromtimestamp(commit.committed_date, UTC).isoformat(timespec="seconds"),
        author=commit.author.name,
        subject=subject.splitlines()[0] if subject else "",
        digest=digest_of(tree_files(tree)),
        title=_title_of(facts),
    )


def at(entries: Path, entry_id: str, version: int | None = None) -> Snapshot:
    """Return the files of one version of an entry.

    Args:
        entries: The ``entries/`` folder.
        entry_id: Its id.
        version: Which one; None for the files that are there now.

    Raises:
        EntryNotFoundError: There is no such entry or version; the hint names those that there are.
        HistoryError: The version is not the present one and git is missing, cannot be read, or holds too little.
    """
    present = _present(entries, entry_id)
    if present is not None and version in (None, present.version):
        return present
    if version is None:
        raise EntryNotFoundError(f"no entry {entry_id!r}", hint="kb list")
    seen: list[int] = []
    with opened(entries) as repository:
        path = relative(repository, entries) + "/" + entry_id
        for commit, tree, facts in _walk(repository, path):
            if _version_of(facts) == version:
                files = tree_files(tree)
                return Snapshot(entry_id, version, commit.hexsha, facts, _text(files.get(layout.README, b"")), files)
            seen.append(_version_of(facts) or 0)
        if _shallow(repository):
            raise HistoryError(
                f"version {version} of {entry_id} is not in this shallow clone", hint="git fetch --unshallow"
            )
    seen.extend([present.version] if present is not None else [])
    known = ", ".join(str(each) for each in sorted(set(seen))) or "none"
    raise EntryNotFoundError(f"no version {version} of {entry_id}", hint=f"versions: {known}")


def diff(old: Snapshot, new: Snapshot) -> tuple[str, ...]:
    """Return a unified diff of all files of two versions.

    Args:
        old: The version to compare from.
        new: The version to compare to.

    Returns:
        Lines without line ends; none if nothing differs.
    """
    lines: list[str] = []
    for name in sorted({*old.files, *new.files}):
        before, after = old.files.get(name), new.files.get(name)
        if before == after:
            continue
        lines.extend(
            difflib.unified_diff(
                _text(before or b"").splitlines(),
                _text(after or b"").splitlines(),
                "/dev/null" if before is None else f"{old.id}@{old.version}/{name}",
                "/dev/null" if after is None else f"{new.id}@{new.version}/{name}",
                lineterm="",
            )
        )
    if len(lines) > _MAX_DIFF_LINES:
        lines = [*lines[:_MAX_DIFF_LINES], f"… {len(lines) - _MAX_DIFF_LINES} more lines"]
    return tuple(lines)
