"""Lists the kernels that fall short of the roofline's goal, and what their readmes say of it.

    python -m tests.gpu.shortfalls [--root DIR] [--device D]

A kernel falls short where none of its measured workloads reaches 85 % of the floor (bound by memory) or 70 % (bound by
arithmetic); what only a launch bounds has no goal. Exit code 1 where a readme says nothing of it.
"""

import argparse
import re
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kb import catalogue, hardware
from kb.config import Root, find_root
from kb.service import indexing
from kb.service.coverage import GOALS, figures_on

MISSING = "missing"
_SAYS = re.compile(
    r"roofline|falls? short|\bshort of\b|\bof the (floor|peak|bandwidth|measured)|"
    r"\d\s?%[^.]{0,40}\b(floor|peak|bandwidth|copy rate)\b",
    re.IGNORECASE,
)
_SQL = (
    f"SELECT id, cells, readme FROM {catalogue.ENTRY} "  # noqa: S608 - a constant
    "WHERE kind = 'kernel' AND withdrawn IS NULL ORDER BY id"
)


@dataclass(frozen=True)
class Shortfall:
    """One kernel below its goal."""

    id: str
    reached: float
    """Best share of the floor."""
    bound: str
    workload: str
    below: int
    """Figures below their goal, of ``timed``."""
    timed: int
    sentence: str
    """What its readme says of it, or ``missing``."""


def shortfalls(root: Root, device: str) -> Iterator[Shortfall]:
    """Yield the kernels whose every measured workload stays below the goal, the furthest from it first.

    Args:
        root: The knowledge base.
        device: A device or family.
    """
    names = hardware.resolve(device).device_names

    def read(connection: sqlite3.Connection) -> list[Shortfall]:
        found = []
        for entry_id, cells, readme in connection.execute(_SQL):
            figures = [
                (one["roofline"], one["bound"], one["workload"])
                for one in figures_on(catalogue.stored_json(cells), names)
                if one["bound"] in GOALS and one["roofline"] is not None
            ]
            below = sum(reached < GOALS[bound] for reached, bound, _ in figures)
            if figures and below == len(figures):
                best = max(figures, key=lambda one: one[0] / GOALS[one[1]])
                found.append(Shortfall(entry_id, *best, below, len(figures), sentence(readme)))
        return found

    yield from sorted(indexing.ask(root, read), key=lambda one: one.reached / GOALS[one.bound])


def sentence(readme: str) -> str:
    """Return the sentences of a readme that speak of the floor, one line, or ``missing``."""
    text = " ".join(line for line in readme.splitlines() if not line.startswith("#"))
    said = [one.strip() for one in re.split(r"(?<=[.!?])\s+(?=[A-Z*`])", text) if _SAYS.search(one)]
    return " ".join(said) or MISSING


def main(argv: Sequence[str] | None = None) -> int:
    """Print them, one a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root")
    parser.add_argument("--device", default="H200")
    asked = parser.parse_args(argv)
    found = list(shortfalls(find_root(asked.root), asked.device))
    for one in found:
        reached, goal = 100 * one.reached, 100 * GOALS[one.bound]
        print(
            f"{one.id}: {reached:.0f} % of the {one.bound} floor at best, goal {goal:.0f} % "
            f"({one.workload}; {one.timed} figures): {one.sentence}"
        )
    silent = sum(one.sentence == MISSING for one in found)
    print(f"{len(found)} kernels fall short, {silent} of their readmes say nothing of it", file=sys.stderr)
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
