"""Submit: have a candidate judged and file it, or a negative result, in one commit on a branch of its own."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kb.config import Root
from kb.errors import ConfigError, EntryNotFoundError
from kb.service import judging_apart, submission
from kb.service.judging_apart import Order, Progress, Runner
from kb.service.submission import Submission
from kb.store import branches, content, layout
from kb.store.branches import Branch
from kb.store.files import StoredEntry
from kb.values import plain

BRANCH = "submissions"
"""Where submissions go unless another branch is named."""

_ANY_DTYPE = ("float32",)
"""Stands for the dtypes until the judge has said which pass."""


@dataclass(frozen=True)
class Submitted:
    """What came of a submission."""

    state: str
    """``filed``, ``unchanged`` (it was there already) or ``refused`` (the judge's verdict does not bear it out)."""
    id: str
    """Of the entry; of the one that would have been made if it was refused."""
    version: int
    digest: str | None
    branch: str | None
    """None if it is among the entries already, or was refused."""
    commit: str | None
    verdict: str | None
    """``accepted``, ``rejected`` or ``needs_review``; None without code, or if nothing was judged anew."""
    reasons: tuple[str, ...]
    details: tuple[str, ...]
    """One line a reason, in words."""
    next_step: str

    def to_json(self) -> dict[str, object]:
        """Return it as plain JSON values."""
        return {name: plain(value) for name, value in vars(self).items()}


def submit(
    root: Root,
    made: Submission,
    *,
    author: str,
    branch: str = BRANCH,
    judge: Runner = judging_apart.judge_apart,
    progress: Progress | None = None,
    given_up: threading.Event | None = None,
) -> Submitted:
    """Judge a submission and file it.

    The same content again is not filed twice. Nothing is pushed, and the working tree is not touched.

    Args:
        root: The knowledge base; in a git repository with at least one commit.
        made: What is submitted.
        author: Who submits: name of the token, or of the user.
        branch: Where the commit goes; made from what is checked out if it does not exist.
        judge: Judges the candidate.
        progress: Called with a phrase at each step.
        given_up: Ends the judgement as soon as it is set.

    Returns:
        What came of it; a verdict that does not bear out the claim is no error.

    Raises:
        ConfigError: The knowledge base cannot be written, or the branch is checked out.
        EntryFormatError: A field is missing or not what is expected.
        EntryNotFoundError: A parent is no entry.
        HistoryError: There is no git repository, or git failed; nothing was filed.
        UnknownOperatorError: No operator has this name.
        ValidatorError: The judge could not work; that says nothing about the candidate.
    """
    if root.packaged:
        raise ConfigError("the starter entries are never written to", hint="kb init DIR; then kb mcp --root DIR")
    submission.check(made)
    order = None
    if made.source is not None:
        order = Order(str(made.operator), made.source, made.device, made.dtypes or None)
        judging_apart.check(order)
    submission.compose(made, dtypes=made.dtypes or _ANY_DTYPE, said=None, author=author)
    with branches.held(root.entries, branch) as there:
        found = _existing(root, made, there)
        _refuse_unknown_parents(root, made, there)
    if found is not None:
        return found
    said = None if order is None else judge(order, progress, given_up)
    fault = None if said is None else _not_borne_out(made, said)
    if said is not None and fault is not None:
        return _refused(made, said, fault)
    if progress is not None:
        progress("filing")
    stored = submission.compose(made, dtypes=_passed(made, said), said=said, author=author)
    with branches.held(root.entries, branch) as there:
        found = _existing(root, made, there)
        return found if found is not None else _filed(made, stored, said, there, author)


def _not_borne_out(made: Submission, said: Mapping[str, Any]) -> str | None:
    """Say why the verdict does not bear the outcome out, or None."""
    verdict = said["verdict"]
    if made.outcome in ("incorrect", "infeasible"):
        if verdict == "accepted":
            return f"the judge accepts it, so it is not {made.outcome} here: submit another outcome, or without source"
        return None
    if verdict == "accepted":
        return None
    if verdict == "needs_review":
        return "a person has to look at it: see the details, take away what raised the doubt, and submit again"
    return "mend the source and judge it again; if it cannot be mended, submit it with outcome = incorrect"


def _passed(made: Submission, said: Mapping[str, Any] | None) -> tuple[str, ...]:
    if said is None or made.dtypes:
        return made.dtypes
    return tuple(dict.fromkeys(str(case["dtype"]) for case in said["cases"])) or _ANY_DTYPE


def _existing(root: Root, made: Submission, there: Branch) -> Submitted | None:
    """Return what was filed before with the same content: on the branch, or among the entries."""
    topic = f"{made.kind}/{made.topic}"
    folder = root.entries / topic
    end = f"-{made.mark}"
    local = [one.name for one in folder.iterdir() if one.is_dir()] if folder.is_dir() else []
    twin = next((name for name in sorted(local) if name.endswith(end) or _same_code(folder / name, made)), None)
    if twin is not None:
        step = "it is among the entries already: get it; nothing was judged or filed"
        return Submitted("unchanged", f"{topic}/{twin}", 1, None, None, None, None, (), (), step)
    name = next((one for one in there.names(topic) if one.endswith(end)), None)
    if name is None:
        return None
    commit = there.last_commit_of(f"{topic}/{name}")
    step = f"it was submitted before, and waits on the branch {there.name}"
    return Submitted("unchanged", f"{topic}/{name}", 1, None, there.name, commit, None, (), (), step)


def _same_code(folder: Path, made: Submission) -> bool:
    """Tell whether an entry's only code is that of a submission."""
    if made.source is None or made.outcome != "works":
        return False
    body = made.source.encode("utf-8", "replace")
    code = [one for one in folder.iterdir() if one.is_file() and layout.is_candidate(one.name)]
    if len(code) != 1 or code[0].stat().st_size != len(body):
        return False
    return content.read_file(code[0], content.MAX_FILE_BYTES) == body


def _refuse_unknown_parents(root: Root, made: Submission, there: Branch) -> None:
    for parent in made.parents:
        if not layout.folder_of(root.entries, parent).is_dir() and not there.names(parent):
            raise EntryNotFoundError(f"parents: no entry has the id {parent!r}", hint="ids are as search shows them")


def _refused(made: Submission, said: Mapping[str, Any], fault: str) -> Submitted:
    reasons, details = tuple(said["reasons"]), tuple(said["details"])
    return Submitted("refused", made.id, 1, None, None, None, said["verdict"], reasons, details, fault)


def _filed(
    made: Submission, stored: StoredEntry, said: Mapping[str, Any] | None, there: Branch, author: str
) -> Submitted:
    files = {f"{stored.id}/{name}": body for name, body in stored.files.items()}
    done = there.commit(files, message=_message(made, stored, said), author=author)
    verdict = None if said is None else str(said["verdict"])
    reasons = () if said is None else tuple(said["reasons"])
    details = () if said is None else tuple(said["details"])
    step = (
        f"filed on the branch {done.branch}; search finds it once it is merged (git merge {done.branch}), "
        f"and kb validate {stored.id} then makes its evidence"
        if said is not None
        else f"filed on the branch {done.branch}; search finds it once it is merged (git merge {done.branch})"
    )
    return Submitted(
        "filed", stored.id, 1, stored.digest, done.branch, done.commit, verdict, reasons, details, step
    )  # fmt: skip


def _message(made: Submission, stored: StoredEntry, said: Mapping[str, Any] | None) -> str:
    lines = [f"Submit {stored.id}", "", " ".join(made.title.split()), ""]
    lines += [f"Outcome: {made.outcome}", f"Entry-Digest: {stored.digest}", f"Submission: {made.content}"]
    if said is not None:
        lines += [f"Verdict: {said['verdict']}", f"Device: {said.get('device', 'cpu')}"]
        lines += [f"Plan: {said['plan_sha256']}"] if said.get("plan_sha256") else []
    return "\n".join(lines) + "\n"
