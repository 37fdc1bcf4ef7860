"""Kill ``kb mcp`` in the middle of submissions, again and again: what was acknowledged is there afterwards.

By hand, with more kills than the suite has time for: ``python -m tests.server.killing --kills 20``
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from kb.config import Root
from tests.server.talking import Wire, git, starter_in_git

AT_ONCE = 4
"""Submissions that are on their way at one time."""


def negative(number: int) -> dict[str, object]:
    """Return one submission without code; each number is another one."""
    return {
        "title": f"Attempt {number} lost", "claim": f"Variant {number} was tried and was slower.", "operator": "silu",
        "outcome": "regression", "condition": "sm_90, 32 rows", "effect": f"1.{number} times slower",
        "license": "CC0-1.0",
    }  # fmt: skip


def run(base: Root, *, kills: int, seed: int) -> dict[int, tuple[str, str]]:
    """Submit, and kill the server after a random number of answers, with others still on their way.

    Args:
        base: In git.
        kills: How often.
        seed: Of the moments.

    Returns:
        Number of the submission → id and commit, of all that were acknowledged.
    """
    chance = random.Random(seed)  # noqa: S311 - moments, no secrets
    acknowledged: dict[int, tuple[str, str]] = {}
    number = 0
    for _ in range(kills):
        wire = Wire(base)
        sent = range(number, number + AT_ONCE + chance.randrange(AT_ONCE))
        for one in sent:
            wire.call(one + 1, "submit", **negative(one))
        wire.reply(sent[chance.randrange(2)] + 1)
        time.sleep(chance.random() * 0.05)
        wire.process.send_signal(signal.SIGKILL)
        wire.close()
        for one in sent:
            said = wire.replies.get(one + 1, {}).get("result", {}).get("structuredContent")
            if said is not None and said.get("state") in ("filed", "unchanged"):
                acknowledged[one] = (said["id"], said["commit"])
        number = sent[-1]  # the last one may be on its way still: it is sent again, and is filed once
    return acknowledged


def lost(base: Root, acknowledged: dict[int, tuple[str, str]]) -> list[str]:
    """Return what was acknowledged and is not there, or is there twice; and what git finds wrong."""
    folder = base.path
    git(folder, "fsck", "--strict", "--no-dangling")
    commits = git(folder, "log", "--format=%H", "main..submissions").split()
    titles = git(folder, "log", "--format=%s", "main..submissions").splitlines()
    listed = git(folder, "ls-tree", "-r", "--name-only", "submissions").splitlines()
    faults = [f"{one} twice" for one in set(titles) if titles.count(one) > 1]
    for name, commit in acknowledged.values():
        if commit not in commits:
            faults.append(f"{name}: no commit {commit}")
        faults += [f"{name}: no {file}" for file in ("entry.toml", "README.md")
                   if f"entries/{name}/{file}" not in listed]  # fmt: skip
    return faults


def main() -> int:
    """Kill as often as asked; return 0 if nothing was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kb-killing-") as folder:
        base = starter_in_git(Path(folder) / "base")
        acknowledged = run(base, kills=asked.kills, seed=asked.seed)
        faults = lost(base, acknowledged)
        filed = len(git(base.path, "log", "--format=%H", "main..submissions").split())
    sys.stdout.write(f"{asked.kills} kills, {len(acknowledged)} acknowledged, {filed} filed, lost: {faults or 0}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
