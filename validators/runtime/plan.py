"""The plan of cases: drawn after the candidate is loaded, frozen and hashed before it is used."""

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kb.validators.operators.spec import Workload

FRESH, EDITED, SAME_WEIGHTS, REPEATED = "fresh", "edited", "same_weights", "repeated"
"""How the contents of a call come about: all new; one element of the previous call changed; new but for static
arguments; equal to the previous call (the only case in which a repeated answer is right)."""


@dataclass(frozen=True)
class Case:
    """One call of the candidate."""

    index: int
    """Position in the conversation."""
    workload: int
    """Index into the plan's workloads."""
    turn: int
    """How often this workload was called before."""
    seed: int
    contents: str
    slot: int
    """Which of the workload's two places in memory holds the inputs."""


@dataclass(frozen=True)
class Plan:
    """All calls of one judgement, in order."""

    operator: str
    workloads: tuple[Workload, ...]
    cases: tuple[Case, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, in the form that is hashed."""
        return {
            "operator": self.operator,
            "workloads": [{**asdict(w), "axes": dict(w.axes)} for w in self.workloads],
            "cases": [asdict(case) for case in self.cases],
        }

    def only(self, workloads: frozenset[int]) -> "Plan":
        """Return the part of the plan that calls these workloads; indices stay what they are."""
        return Plan(self.operator, self.workloads, tuple(one for one in self.cases if one.workload in workloads))

    @property
    def sha256(self) -> str:
        """Digest of the canonical form."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def draw(operator: str, workloads: Sequence[Workload], *, master_seed: int, calls: tuple[int, int] = (3, 6)) -> Plan:
    """Draw a plan.

    Args:
        operator: Name of the operator.
        workloads: What may be asked; each is called at least ``calls[0]`` times.
        master_seed: From the system's entropy, drawn after the candidate was loaded and frozen.
        calls: Least and most calls of one workload.

    Returns:
        A plan whose order, number of calls, contents and places nobody could have known before.
    """
    dice = random.Random(master_seed)  # noqa: S311 - the seed carries the entropy; the plan must be repeatable from it
    turns = [which for which in range(len(workloads)) for _ in range(dice.randint(*calls))]
    dice.shuffle(turns)
    contents = {which: _contents(turns.count(which), dice) for which in range(len(workloads))}
    counts = [0] * len(workloads)
    slots = [0] * len(workloads)
    used = [{0} for _ in workloads]
    cases = []
    for index, which in enumerate(turns):
        turn = counts[which]
        counts[which] += 1
        kind = contents[which][turn]
        # The first two calls share a place: old address, new contents. Later ones move as the dice say, but new
        # contents come to an old address at least once more.
        if turn >= 2 and dice.random() < 0.5 and (kind != FRESH or slots[which] ^ 1 in used[which]):
            slots[which] ^= 1
        used[which].add(slots[which])
        cases.append(Case(index, which, turn, dice.getrandbits(62), kind, slots[which]))
    return Plan(operator, tuple(workloads), tuple(cases))


def _contents(count: int, dice: random.Random) -> list[str]:
    """Say how the contents of each call of one workload come about.

    Among three calls there is always one with all new contents and one with a single change; repetition is never the
    second call.
    """
    later = [FRESH, EDITED][: count - 1] if dice.random() < 0.5 else [EDITED, FRESH][: count - 1]
    later += [dice.choice((FRESH, EDITED, SAME_WEIGHTS, REPEATED)) for _ in range(count - 1 - len(later))]
    dice.shuffle(later)
    if later and later[0] == REPEATED:
        later.append(later.pop(0))
    if later and later[0] == REPEATED:
        later[0] = FRESH
    return [FRESH, *later]
