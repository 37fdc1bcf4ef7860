"""Tensors that workloads name by path: a digest of each, and the small ones themselves, as text.

An entry holds text alone, so a small safetensors file is kept as base64. Of a large one only path, size and digest are
kept; an export writes these beside the workloads, so that importing it again gives the same entry.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kb.errors import SourceFormatError
from kb.importers.base import Exported, Filed, Item
from kb.importers.flashinfer_entries import dump
from kb.importers.naming import unsafe_path, windows_fault
from kb.importers.reading import object_of
from kb.importers.streams import file_digest
from kb.importers.tree import Tree

SIDECAR = ".blobs.json"
"""Suffix of the list of digests beside a file of rows."""
MAX_BLOB_BYTES = 512 << 10
"""Largest file that is copied into an entry."""
MAX_ENTRY_BYTES = 4 << 20
"""Of all blobs in one entry."""
_MOST_BLOBS = 150
_MAX_HEADER_BYTES = 1 << 20
_LIST = "blobs.json"
_HEXADECIMAL = frozenset("0123456789abcdef")


def blob_path(path: str) -> str:
    """Return the path of a blob below the root of its data set.

    Raises:
        SourceFormatError: It leads out of the data set, or is no safetensors file.
    """
    plain = path.removeprefix("./")
    fault = unsafe_path(plain)
    if fault is not None or not plain.endswith(".safetensors"):
        raise SourceFormatError(f"blob {path[:80]!a}: expected a safetensors file inside the data set")
    return plain


def _paths(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for row in rows:
        for one in row["workload"]["inputs"].values():
            if one["type"] == "safetensors":
                yield blob_path(one["path"]), one["tensor_key"]


def _place(tree: Tree, folder: str, path: str) -> str | None:
    """Return where a blob lies: paths are relative to the data set's root, which is some folder above the rows."""
    parts = folder.split("/") if folder else []
    for depth in range(len(parts), -1, -1):
        found = "/".join([*parts[:depth], path])
        if tree.exists(found):
            return found
    return None


def _tensors(tree: Tree, place: str, size: int) -> frozenset[str]:
    """Return the names of the tensors in a safetensors file."""
    head = tree.head(place, 8)
    length = int.from_bytes(head, "little")
    if len(head) < 8 or not 2 <= length <= min(_MAX_HEADER_BYTES, size - 8):
        raise SourceFormatError(f"blob {place[:80]!a}: expected a safetensors file, found no header")
    try:
        return frozenset(object_of(tree.head(place, 8 + length)[8:]))
    except SourceFormatError as error:
        raise SourceFormatError(f"blob {place[:80]!a}: {error.message}") from error


def known_digests(item: Item) -> Mapping[str, Mapping[str, Any]]:
    """Return what the list beside a file of rows says of blobs that do not lie here: path to size and digest.

    Raises:
        SourceFormatError: The list is not of this form.
    """
    for file in item.files[1:]:
        body = object_of(item.tree.read(file.path, limit=1 << 20), depth=4)
        for path, one in body.items():
            blob_path(path)
            digest = one.get("sha256") if isinstance(one, dict) else None
            if not isinstance(digest, str) or len(digest) != 64 or not set(digest) <= _HEXADECIMAL:
                raise SourceFormatError(f"{file.name}: expected a digest for {path[:80]!a}")
        return body
    return {}


def blob_files(
    item: Item, rows: Sequence[Mapping[str, Any]], known: Mapping[str, Mapping[str, Any]]
) -> dict[str, bytes]:
    """Return the files of an entry that stand for the blobs of its rows; none if they name none.

    Args:
        item: The file of rows.
        rows: Its rows, checked.
        known: From :func:`known_digests`.

    Raises:
        SourceFormatError: A blob is no safetensors file, lacks a tensor, or is not the one that the list states.
    """
    wanted: dict[str, set[str]] = {}
    for path, key in _paths(rows):
        wanted.setdefault(path, set()).add(key)
    listed: dict[str, dict[str, Any]] = {}
    files: dict[str, bytes] = {}
    held = 0
    for path in sorted(wanted):
        place = _place(item.tree, item.files[0].folder, path)
        if place is None:
            stated = known.get(path, {})
            listed[path] = {"sha256": stated.get("sha256"), "size_bytes": stated.get("size_bytes")}
            continue
        digest, size = file_digest(item.tree, place)
        if path in known and known[path]["sha256"] != digest:
            raise SourceFormatError(f"blob {path[:80]!a}: its digest is not the one that the list beside it states")
        missing = sorted(wanted[path] - _tensors(item.tree, place, size))
        if missing:
            raise SourceFormatError(f"blob {path[:80]!a}: it has no tensor {missing[0][:60]!a}")
        listed[path] = {"sha256": digest, "size_bytes": size}
        fits = size <= MAX_BLOB_BYTES and held + size <= MAX_ENTRY_BYTES and len(files) < _MOST_BLOBS
        if fits and windows_fault(path) is None:
            name = f"blob_{len(files)}.txt"
            files[name] = base64.encodebytes(item.tree.read(place, limit=MAX_BLOB_BYTES))
            listed[path]["file"] = name
            held += size
    return {_LIST: dump(listed), **files} if listed else {}


def exported_blobs(entry: Filed, rows_path: str) -> Iterator[Exported]:
    """Write the blobs that an entry holds, and the list of all of them beside its rows.

    Args:
        entry: With workloads or traces.
        rows_path: Where its rows are written to.

    Raises:
        SourceFormatError: What the entry holds is not what its list states.
    """
    if _LIST not in entry.files:
        return
    listed = object_of(entry.files[_LIST])
    for path, one in listed.items():
        blob_path(path)
        if "file" not in one:
            continue
        body = _decoded(entry.files.get(one["file"], b""))
        if hashlib.sha256(body).hexdigest() != one["sha256"]:
            raise SourceFormatError(f"blob {path[:80]!a}: its bytes are not those of its digest")
        yield Exported(path, body, entry.id)
    stated = {path: {"sha256": one["sha256"], "size_bytes": one["size_bytes"]} for path, one in listed.items()}
    if any(one["sha256"] for one in stated.values()):
        kept = {path: one for path, one in sorted(stated.items()) if one["sha256"]}
        body = (json.dumps(kept, indent=2) + "\n").encode("ascii")
        yield Exported(rows_path.removesuffix(".jsonl") + SIDECAR, body, entry.id)


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(b"".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise SourceFormatError(f"expected base64, found: {error}") from error


def missing_blobs(entry: Filed) -> Iterable[str]:
    """Return the paths of blobs that an entry names and does not hold."""
    if _LIST not in entry.files:
        return ()
    return tuple(path for path, one in object_of(entry.files[_LIST]).items() if "file" not in one)
