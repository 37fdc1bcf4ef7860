"""The candidates of the red team: where they are, and what is expected of each."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CATALOGUE = "ABCDEFGHIJK"

CPU_ROWS = (
    *(f"A{n}" for n in (*range(1, 13), 14, 15)),
    *(f"B{n}" for n in (*range(1, 9), 10)),
    *(f"C{n}" for n in (1, 3, 4, 5)),
    *(f"D{n}" for n in (*range(1, 7), 9, 10)),
    *(f"E{n}" for n in (1, 2, 3, 6, 7)),
    *(f"F{n}" for n in (2, 3, 4, 7, 11, 12, 16)),
    *(f"G{n}" for n in range(1, 10)),
    *(f"H{n}" for n in range(1, 10)),
    *(f"I{n}" for n in (1, 2, 3, 5)),
    *(f"J{n}" for n in range(1, 8)),
    *(f"K{n}" for n in range(1, 6)),
)
"""Rows of the catalogue of exploits that need no accelerator."""

ELSEWHERE = {
    "B10": "a trivial task is refused before any candidate: tests/validators/operators/test_admission.py",
    "F12": "a geometric mean refuses a ratio of zero: tests/test_units.py",
    "H8": "a call of the library is recorded as delegation (honest/e/library_call); likeness needs other entries",
    "H9": "what is shown of an entry is derived from its evidence alone: tests/test_evidence.py",
}
"""Rows that no single candidate can stand for, and where they are held."""

COMM_ALIKE = {
    "J1": ("alone_is_a_copy", "local_where_that_is_all"),
    "J2": ("skips_ranks_without_rows", "root_adds_for_all"),
    "J3": ("library_halves", "barrier_and_counts"),
    "J4": ("declared_bfloat16", "padded_messages"),
    "J5": ("one_rank_works_longer", "reads_the_clock"),
    "J6": ("fence_then_barrier", "many_writes_one_signal", "waits_at_the_end"),
    "J7": ("keeps_its_buffers", "two_windows_in_turn"),
}
"""Which honest schemes of communication look like the exploits of a row."""


@dataclass(frozen=True)
class Sample:
    """One candidate and what its docstring says of it."""

    path: Path
    summary: str
    operator: str
    row: str = ""
    """Row of the catalogue; empty for honest candidates."""
    reasons: tuple[str, ...] = ()
    """Reason codes, at least one of which must be given."""
    verdict: str = "accepted"

    @property
    def name(self) -> str:
        """Return the path below this folder, without its suffix."""
        return self.path.relative_to(HERE).with_suffix("").as_posix()

    @property
    def expected(self) -> str:
        """Return verdict and reasons in words."""
        return self.verdict + (f": {' or '.join(self.reasons)}" if self.reasons else "")

    def agrees(self, verdict: str, reasons: Iterable[str]) -> bool:
        """Tell whether what the judge said is what is expected."""
        given = set(reasons)
        return verdict == self.verdict and (bool(given & set(self.reasons)) if self.reasons else not given)


def read(path: Path) -> Sample:
    """Read one candidate's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    summary, _, rest = text.partition("\n")
    facts = {key: value.strip() for key, _, value in (line.partition(":") for line in rest.splitlines() if line)}
    reasons = tuple(one.strip() for one in facts.get("reason", "").split(",") if one.strip())
    verdict = facts.get("verdict", "rejected" if reasons else "accepted")
    return Sample(path, summary, facts["operator"], facts.get("row", ""), reasons, verdict)


def samples(kind: str) -> list[Sample]:
    """Return all candidates of one kind, ``cheats`` or ``honest``."""
    return [read(path) for path in sorted((HERE / kind).rglob("*.py"))]


CHEATS, HONEST = samples("cheats"), samples("honest")
