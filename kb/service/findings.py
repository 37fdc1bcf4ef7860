"""What a check says: one finding a line, and the whole report."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["problem", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing that a check found."""

    severity: Severity
    """``problem``: the entry breaks a rule; ``warning``: it works but should be looked at; ``note``: not checked."""
    where: str
    """Id, or path below the knowledge base."""
    message: str
    hint: str | None = None


@dataclass(frozen=True)
class CheckReport:
    """All findings, by place."""

    entries: int
    """How many folders were looked at."""
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> tuple[Finding, ...]:
        """Findings that must be mended."""
        return tuple(each for each in self.findings if each.severity == "problem")

    @property
    def ok(self) -> bool:
        """True if there is no problem; warnings and notes may remain."""
        return not self.problems
