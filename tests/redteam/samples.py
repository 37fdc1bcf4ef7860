"""The candidates of the red team: where they are, and what is expected of each."""

import ast
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CATALOGUE = "ABCDEFGHI"


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
    def honest(self) -> bool:
        """Tell whether the candidate does its work."""
        return self.verdict == "accepted"


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
