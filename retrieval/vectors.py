"""The vectors of all entries in two files, read through a memory map: exact nearest neighbours without an index.

``vectors.json`` says which model made them, of which texts, and which data file holds them; it is replaced in one step,
and data files are never written to again. So a reader sees the vectors from before or after a change, nothing between.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.errors import IndexStaleError, RetrievalError, StoreError
from kb.retrieval.embed import Space, require_same

if TYPE_CHECKING:
    from kb.retrieval.embed import Matrix

FILE = "vectors.json"
SCHEMA = 1

_ATTEMPTS = 5
_HINT = "kb index --rebuild"


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors of all entries, read-only."""

    space: Space
    ids: tuple[str, ...]
    """Sorted; row ``i`` of the matrix belongs to ``ids[i]``."""
    digests: tuple[str, ...]
    """Digest of the text that was embedded, per row."""
    matrix: "Matrix"
    """float32 [len(ids), dim], rows of length 1."""
    name: str
    """Name of the data file; another content has another name."""
    tree: str | None
    """State of the entries that they were made from; None if it has to be looked at again."""

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """Id to row."""
        return {entry_id: row for row, entry_id in enumerate(self.ids)}

    def search(self, vector: "Matrix", *, limit: int, ids: Sequence[str] | None = None) -> list[tuple[str, float]]:
        """Return the nearest entries by comparing with every one.

        Args:
            vector: float32 [dim], of length 1.
            limit: Most entries to return.
            ids: Look among these only; None for all. Ids without a vector are passed over.

        Returns:
            Id and cosine, best first; equal ones by id.

        Raises:
            RetrievalError: The vector has another length.
        """
        import numpy as np

        if vector.shape != (self.space.dim,):
            raise RetrievalError(
                f"expected a vector of {self.space.dim} numbers, found shape {vector.shape}", hint=_HINT
            )
        chosen: Any = None
        if ids is not None:
            known = self.rows
            chosen = np.array(sorted({known[one] for one in ids if one in known}), dtype=np.intp)
        scores = (self.matrix if chosen is None else self.matrix[chosen]) @ vector
        limit = min(limit, len(scores))
        if limit <= 0:
            return []
        # Everything that ties with the last place competes for it, so that the order never depends on the method.
        bar = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        places = np.flatnonzero(scores >= bar)
        # Rows stand in order of ids and the sort is stable, so equal scores come out by id.
        places = places[np.argsort(-scores[places], kind="stable")][:limit]
        return [(self.ids[int(place if chosen is None else chosen[place])], float(scores[place])) for place in places]


def save(
    folder: Path,
    space: Space,
    rows: Mapping[str, tuple[str, "Matrix"]],
    *,
    tree: str | None = None,
) -> Vectors:
    """Write vectors and make them the current ones. Hold the lock of the folder while calling.

    Args:
        folder: Where derived files lie.
        space: The model that made them.
        rows: Id to digest of the text and vector, float32 [dim] of length 1.
        tree: State of the entries that they were made from.

    Returns:
        The vectors, mapped from the new file.

    Raises:
        RetrievalError: A vector has another length than the model's or is not of length 1.
        StoreError: A file cannot be written.
    """
    import numpy as np

    ids = sorted(rows)
    matrix = np.zeros((len(ids), space.dim), dtype="<f4")
    for row, entry_id in enumerate(ids):
        vector = rows[entry_id][1]
        if vector.shape != (space.dim,) or not abs(float(np.linalg.norm(vector)) - 1.0) < 1e-3:
            raise RetrievalError(f"{entry_id}: expected a vector of length 1 with {space.dim} numbers")
        matrix[row] = vector
    body = matrix.tobytes()
    digests = [rows[entry_id][0] for entry_id in ids]
    name = f"vectors-{_content(space, ids, digests, body)}.f32"
    header = {
        "schema": SCHEMA,
        "space": space.to_json(),
        "count": len(ids),
        "data": name,
        "tree": tree,
        "ids": ids,
        "digests": digests,
    }
    try:
        if not (folder / name).is_file() or (folder / name).stat().st_size != len(body):
            _replace(folder / name, body)
        _replace(folder / FILE, json.dumps(header, sort_keys=True, indent=2).encode("utf-8") + b"\n")
    except OSError as error:
        raise StoreError(f"cannot write vectors to {folder}: {error.strerror}", hint="check free space") from error
    _remove_others(folder, keep=name)
    return load(folder)


def load(folder: Path) -> Vectors:
    """Open the current vectors.

    Args:
        folder: Where derived files lie.

    Raises:
        IndexStaleError: There are none, or they are damaged.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _load(folder)
        except FileNotFoundError as error:
            # Between reading the header and opening its data file, a writer may have replaced both.
            if attempt + 1 == _ATTEMPTS or not (folder / FILE).is_file():
                raise IndexStaleError(f"no vectors at {folder}", hint=_HINT) from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise IndexStaleError(f"{folder / FILE} is damaged: {error}", hint=_HINT) from error
    raise AssertionError("unreachable")


def load_for(folder: Path, space: Space) -> Vectors:
    """Open the current vectors, if they are those of a model.

    Raises:
        IndexStaleError: There are none, or they are damaged.
        RetrievalError: Another model made them.
    """
    found = load(folder)
    require_same(space, found.space)
    return found


def stamp(folder: Path) -> tuple[int, int, int] | None:
    """Return what changes when other vectors become the current ones, or None if there are none."""
    try:
        stat = (folder / FILE).stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _load(folder: Path) -> Vectors:
    import numpy as np

    header = json.loads((folder / FILE).read_bytes())
    if header["schema"] != SCHEMA:
        raise ValueError(f"schema {header['schema']}")
    space = Space.from_json(header["space"])
    ids = tuple(map(str, header["ids"]))
    digests = tuple(map(str, header["digests"]))
    count, name = int(header["count"]), str(header["data"])
    if not len(ids) == len(digests) == count or list(ids) != sorted(set(ids)) or Path(name).name != name:
        raise ValueError("its parts do not fit together")
    data = folder / name
    size = data.stat().st_size
    if size != count * space.dim * 4:
        raise ValueError(f"{name}: expected {count * space.dim * 4} bytes, found {size}")
    matrix: Matrix
    if count:
        matrix = np.memmap(data, dtype="<f4", mode="r", shape=(count, space.dim))
    else:
        matrix = np.zeros((0, space.dim), dtype=np.float32)
    tree = header["tree"]
    return Vectors(space, ids, digests, matrix, name, None if tree is None else str(tree))


def _content(space: Space, ids: Sequence[str], digests: Sequence[str], body: bytes) -> str:
    state = hashlib.sha256(json.dumps([space.key, list(ids), list(digests)]).encode("ascii"))
    state.update(body)
    return state.hexdigest()[:16]


def _replace(path: Path, body: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _remove_others(folder: Path, *, keep: str) -> None:
    for path in folder.glob("vectors*.*"):
        stale = (path.suffix == ".f32" and path.name != keep) or path.suffix == ".part"
        if stale:
            # A reader may still have it mapped, which Windows does not allow to remove; the next writer will.
            with contextlib.suppress(OSError):
                path.unlink()
