"""Tuned parameters as the runtimes lay them out: an object of sizes, one file a matrix product."""

import json
from collections.abc import Mapping
from typing import Any

from kb.errors import SourceFormatError
from kb.importers.reading import object_of

_PARTS = {"gate_up": "", "down": "_down"}


def runtime_files(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files that a runtime reads.

    What was imported is kept as it came. Entries in our own layout name the size that selects a row (``selected_by``)
    and list the rows; those become an object by that size, with the same parameters.

    Args:
        files: Of an entry; ``config.json`` is among them.

    Returns:
        What follows the name of the file (nothing, or ``_down``) → its bytes.

    Raises:
        SourceFormatError: The rows do not have the size that selects them, or have it twice.
    """
    raw = object_of(files["config.json"], depth=8)
    selected, rows = raw.get("selected_by"), raw.get("parameters")
    if not isinstance(selected, str) or rows is None:
        down = files.get("config_down.json")
        return {"": files["config.json"], **({"_down": down} if down is not None else {})}
    parts = {"gate_up": rows} if isinstance(rows, list) else rows
    if not isinstance(parts, dict) or not parts or not set(parts) <= set(_PARTS):
        raise SourceFormatError("parameters: expected rows, or gate_up and down with rows")
    return {_PARTS[name]: _by_size(part, selected) for name, part in parts.items()}


def _by_size(rows: object, selected: str) -> bytes:
    made: dict[str, dict[str, Any]] = {}
    for row in rows if isinstance(rows, list) else ():
        size = row.get(selected) if isinstance(row, dict) else None
        if not isinstance(size, int) or str(size) in made:
            raise SourceFormatError(f"parameters: expected one row for each {selected}")
        made[str(size)] = {name: value for name, value in row.items() if name != selected}
    if not made:
        raise SourceFormatError("parameters: expected rows, found none")
    return f"{json.dumps(made, indent=4)}\n".encode()
