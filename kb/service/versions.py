"""Whether a change of what runs raised the version, against the merge base with the default branch."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kb.config import Root
from kb.errors import HistoryError
from kb.service.findings import Finding
from kb.store import history, layout
from kb.store.files import StoredEntry, parse_facts

if TYPE_CHECKING:
    from git import Commit, Repo

_DEFAULT_BRANCHES = ("origin/HEAD", "origin/main", "origin/master", "main", "master")


def _default_branch(repository: "Repo") -> "Commit | None":
    from git.exc import BadName, GitError

    for name in _DEFAULT_BRANCHES:
        try:
            return repository.commit(name)
        except (BadName, GitError, ValueError, OSError):
            continue
    return None


def _base(repository: "Repo") -> "Commit | None":
    """Return the commit to compare with: where this branch left the default one, else the last commit."""
    if not history.has_commits(repository):
        return None
    head = repository.head.commit
    default = _default_branch(repository)
    if default is None:
        return head
    bases = repository.merge_base(head, default)
    return bases[0] if bases else head


def _compare(stored: StoredEntry, base: "Commit", path: str) -> Finding | None:
    tree = history.tree_at(base, path)
    if tree is None:
        return None
    before = history.tree_files(tree)
    model, _, _ = parse_facts(before.get(layout.FACTS, b""))
    digest = history.digest_of(before)
    if model is None or digest is None:
        return Finding("note", stored.id, f"entries/{stored.id}: {base.hexsha[:12]} holds a version of another format")
    place = f"entries/{stored.id}/{layout.FACTS}: field version"
    hint = f"set version = {model.version + 1} in entries/{stored.id}/{layout.FACTS}"
    if stored.file.version < model.version:
        message = f"{place}: expected at least {model.version}, as in {base.hexsha[:12]}, found {stored.file.version}"
        return Finding("problem", stored.id, message, hint)
    if digest != stored.digest and stored.file.version == model.version:
        message = (
            f"{place}: expected more than {model.version}, because what runs differs from {base.hexsha[:12]}, "
            f"found {stored.file.version}"
        )
        return Finding("problem", stored.id, message, hint)
    return None


def version_findings(root: Root, stored: Sequence[StoredEntry]) -> Iterator[Finding]:
    """Yield the entries whose content changed without a new version.

    Args:
        root: The knowledge base.
        stored: Its entries, as read from the files.
    """
    try:
        with history.opened(root.entries) as repository:
            base = _base(repository)
            if base is None:
                yield Finding("note", "git", "versions were not compared: nothing is committed yet")
                return
            prefix = history.relative(repository, root.entries)
            # Names only, from the index of git: entries that nobody touched cost nothing.
            changed = repository.git.diff("--name-only", "-z", base.hexsha, "--", prefix).split("\0")
            touched = {"/".join(name[len(prefix) + 1 :].split("/")[:3]) for name in changed if name}
            for entry in stored:
                if entry.id in touched:
                    finding = _compare(entry, base, f"{prefix}/{entry.id}")
                    if finding is not None:
                        yield finding
    except HistoryError as error:
        yield Finding("note", "git", f"versions were not compared: {error.message}", error.hint)
