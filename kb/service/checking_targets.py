"""Check what a target names: devices, operators and their axes."""

import importlib.util
from collections.abc import Iterator

from kb import hardware
from kb.errors import DeviceUnavailableError
from kb.models.vocabulary import UNJUDGED_OPERATORS
from kb.service.findings import Finding
from kb.store import layout
from kb.store.files import StoredEntry
from kb.validators.operators import names as operators


def target_findings(stored: StoredEntry) -> Iterator[Finding]:
    """Yield a problem for every device, operator and axis of a target that nobody knows.

    Args:
        stored: Any entry; nothing is yielded of one that describes no target. Axes need torch; without it they pass.
    """
    target = stored.file.target
    if target is None:
        return
    place = f"entries/{stored.id}/{layout.FACTS}: field target"
    for device in target.devices:
        try:
            hardware.resolve(device)
        except DeviceUnavailableError as error:
            yield Finding("problem", stored.id, f"{place}.devices: {error.message}", error.hint)
    typed = importlib.util.find_spec("torch") is not None
    for number, row in enumerate(target.operators):
        where = f"{place}.operators[{number}]"
        if row.operator in UNJUDGED_OPERATORS:
            continue
        if row.operator not in operators.NAMES:
            yield Finding("problem", stored.id, f"{where}: no operator is called {row.operator!r}", "kb operators")
        elif typed and row.operator not in operators.ALLOCATION:
            yield from _axis_findings(stored.id, where, row.operator, (*row.axes, *row.per_token, *row.per_sequence))


def _axis_findings(entry_id: str, where: str, operator: str, axes: tuple[str, ...]) -> Iterator[Finding]:
    from kb.validators.operators import load

    known = load(operator).axes
    for axis in axes:
        if axis not in known:
            message = f"{where}: expected an axis of {operator} ({', '.join(known)}), found {axis!r}"
            yield Finding("problem", entry_id, message, f"kb operators {operator}")
