"""The hard scope of a search: what an entry must be to be shown at all. Standard library only."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping

from kb.catalogue import ENTRY, ENTRY_DTYPE, ENTRY_OPERATOR, LEXICON
from kb.errors import RetrievalError
from kb.models.vocabulary import DTYPES, KINDS, OUTCOMES
from kb.retrieval import words
from kb.retrieval.query import lookup
from kb.values import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kb.hardware import DeviceScope

_PLURAL = {"kernels": "kernel", "allocations": "allocation", "configs": "config", "techniques": "technique",
           "combinations": "combination", "targets": "target", "campaigns": "campaign"}  # fmt: skip


class Scope(Frozen):
    """What was asked for, checked; made by :func:`make`. None and empty mean no such filter."""

    kind: str | None = None
    operator: str | None = None
    """As asked."""
    operators: tuple[str, ...] = ()
    """What it stands for: one operator, or the members of a family such as ``moe``."""
    dtype: str | None = None
    """As asked."""
    dtypes: tuple[str, ...] = ()
    """What it stands for: ``fp8`` is several."""
    arch: str | None = None
    device: str | None = None
    devices: DeviceScope | None = None
    """What ``arch`` or ``device`` stands for. It sorts and labels; nothing that could help there is hidden."""
    outcome: str | None = None
    withdrawn: bool = False
    """Show withdrawn entries as well."""

    def condition(self) -> tuple[str, tuple[object, ...]]:
        """Return the scope as SQL over the entry table named ``e``, and its values."""
        parts = ["1"]
        values: list[object] = []
        if self.kind is not None:
            parts.append("e.kind = ?")
            values.append(self.kind)
        if self.outcome is not None:
            parts.append("e.outcome = ?")
            values.append(self.outcome)
        for column, table, wanted in (
            ("operator", ENTRY_OPERATOR, self.operators),
            ("dtype", ENTRY_DTYPE, self.dtypes),
        ):
            if wanted:
                marks = ",".join("?" * len(wanted))
                parts.append(f"e.rowid IN (SELECT entry_id FROM {table} WHERE {column} IN ({marks}))")  # noqa: S608
                values.extend(wanted)
        if not self.withdrawn:
            parts.append("e.withdrawn IS NULL")
        return " AND ".join(parts), tuple(values)

    def to_json(self) -> dict[str, object]:
        """Return every filter by name, null where it was not asked for."""
        return {
            "kind": self.kind,
            "operator": self.operator,
            "dtype": self.dtype,
            "arch": self.arch,
            "device": self.device,
            "outcome": self.outcome,
            "withdrawn": self.withdrawn,
        }

    def relaxed(self) -> Iterable[tuple[str, Scope]]:
        """Yield every active filter as it would be typed, with the scope that lacks it."""
        if self.outcome is not None:
            yield f"--outcome {self.outcome}", self.with_(outcome=None)
        if self.dtypes:
            yield f"--dtype {self.dtype}", self.with_(dtype=None, dtypes=())
        if self.operators:
            yield f"--operator {self.operator}", self.with_(operator=None, operators=())
        if self.kind is not None:
            yield f"--kind {self.kind}", self.with_(kind=None)

    def without_filters(self) -> Scope:
        """Return the scope with no filter but the device."""
        return Scope(arch=self.arch, device=self.device, devices=self.devices, withdrawn=self.withdrawn)


def make(
    connection: sqlite3.Connection,
    *,
    kind: str | None = None,
    operator: str | None = None,
    dtype: str | None = None,
    arch: str | None = None,
    device: str | None = None,
    outcome: str | None = None,
    withdrawn: bool = False,
) -> Scope:
    """Check filters against what is known.

    Args:
        connection: The catalogue, which knows the operators and the lexicon.
        kind: One of ``vocabulary.KINDS``.
        operator: An operator, another way to say it, or a family (``moe``, ``attention``).
        dtype: A dtype, another way to say it, or a family (``fp8``).
        arch: An architecture (``sm_90``).
        device: A device name, product or family.
        outcome: One of ``vocabulary.OUTCOMES``.
        withdrawn: Show withdrawn entries as well.

    Returns:
        The scope.

    Raises:
        RetrievalError: A value is not known; the hint names the nearest ones.
        DeviceUnavailableError: The device or architecture is not known.
    """
    if arch is not None and device is not None:
        raise RetrievalError("--arch and --device ask for the same thing", hint="give one of them")
    scope = Scope(arch=arch, device=device, withdrawn=withdrawn)
    if kind is not None:
        folded = _fold(kind)
        scope = scope.with_(kind=_one_of("kind", kind, _PLURAL.get(folded, folded), KINDS))
    if outcome is not None:
        scope = scope.with_(outcome=_one_of("outcome", outcome, _fold(outcome), OUTCOMES))
    if dtype is not None:
        scope = scope.with_(dtype=dtype, dtypes=_dtypes(connection, dtype))
    if operator is not None:
        scope = scope.with_(operator=operator, operators=_operators(connection, operator))
    if arch is not None or device is not None:
        from kb import hardware

        found = hardware.resolve_arch(arch) if arch is not None else hardware.resolve(str(device))
        scope = scope.with_(devices=found)
    return scope


def _fold(name: str) -> str:
    return words.clean(name).strip().replace("-", "_").replace(" ", "_")


def _one_of(what: str, given: str, folded: str, known: tuple[str, ...]) -> str:
    if folded in known:
        return folded
    raise unknown(what, given, {name: name for name in known}, everything=known)


def unknown(what: str, given: str, spellings: Mapping[str, str], *, everything: Iterable[str] = ()) -> RetrievalError:
    """Make the error for a value that is not known.

    Args:
        what: What the value should name: ``kind``, ``operator``, …
        given: What was asked for.
        spellings: Every way to write a known value, and the value.
        everything: Shown where nothing is near; the values if it is left empty.

    Returns:
        The error, with the nearest known values as its hint.
    """
    import difflib

    near = difflib.get_close_matches(words.normal(given), spellings, n=6, cutoff=0.6)
    names = list(dict.fromkeys(spellings[one] for one in near))[:3]
    if names:
        return RetrievalError(f"no {what} is called {given!r}", hint=f"did you mean {', '.join(names)}?")
    known = list(everything) or sorted(set(spellings.values()))
    return RetrievalError(f"no {what} is called {given!r}", hint=f"known: {', '.join(known)}")


def _dtypes(connection: sqlite3.Connection, given: str) -> tuple[str, ...]:
    folded = _fold(given)
    if folded in DTYPES:
        return (folded,)
    meant = [canonical for facet, canonical, weight in _said(connection, given) if facet == "dtype" and weight >= 0.5]
    if meant:
        return tuple(dict.fromkeys(meant))
    raise unknown("dtype", given, _spellings(connection, "dtype"), everything=DTYPES)


def _operators(connection: sqlite3.Connection, given: str) -> tuple[str, ...]:
    known = [row[0] for row in connection.execute(f"SELECT DISTINCT operator FROM {ENTRY_OPERATOR} ORDER BY 1")]  # noqa: S608
    folded = _fold(given)
    if folded in known:
        return (folded,)
    said = [(facet, canonical) for facet, canonical, weight in _said(connection, given) if weight >= 0.9]
    direct = tuple(canonical for facet, canonical in said if facet == "operator")
    families = {canonical for facet, canonical in said if facet == "family"}
    if families:
        meanings = lookup(connection, [words.normal(name) for name in known])
        members = tuple(
            name
            for name in known
            if families.intersection(canonical for _, canonical, _ in meanings.get(words.normal(name), ()))
        )
        if members or direct:
            return tuple(dict.fromkeys((*direct, *members)))
    if direct:
        return direct
    spellings = {words.normal(name): name for name in known} | _spellings(connection, "operator")
    raise unknown("operator", given, spellings, everything=known)


def _said(connection: sqlite3.Connection, given: str) -> tuple[tuple[str, str, float], ...]:
    normal = words.normal(given)
    return lookup(connection, [normal]).get(normal, ())


def _spellings(connection: sqlite3.Connection, facet: str) -> dict[str, str]:
    sql = f"SELECT term, canonical FROM {LEXICON} WHERE facet = ? AND weight >= 0.9"  # noqa: S608
    return dict(connection.execute(sql, (facet,)).fetchall())


def count(connection: sqlite3.Connection) -> int:
    """Return how many entries the catalogue has."""
    return int(connection.execute(f"SELECT count(*) FROM {ENTRY}").fetchone()[0])  # noqa: S608
