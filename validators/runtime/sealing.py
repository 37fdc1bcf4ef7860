"""The file that a bundle writes: evidence of several entries under one seal, made with the job's one-time key.

The key is in the bundle and with whoever made the bundle; candidates see neither. The seal shows that the evidence was
written by the bundle's judge and not edited on its way; who ran the bundle is trusted, as ``docs/records.md`` says.
"""

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCHEMA = 1
KEY_BYTES = 32


class SealError(ValueError):
    """A file is no sealed evidence, or the seal is not the job's."""


def canonical(value: object) -> bytes:
    """Return the bytes that are sealed: sorted keys, no blanks, ASCII, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def seal_of(document: Mapping[str, Any], key: bytes) -> str:
    """Return the HMAC-SHA256 of a document without its seal, hexadecimal."""
    body = canonical({name: value for name, value in document.items() if name != "seal"})
    return hmac.new(key, b"kb-evidence-1\0" + body, hashlib.sha256).hexdigest()


def is_sealed(document: Mapping[str, Any], key: bytes) -> bool:
    """Tell whether a document's seal was made with this key, in constant time."""
    seal = document.get("seal")
    return isinstance(seal, str) and seal.isascii() and hmac.compare_digest(seal, seal_of(document, key))


def empty(job: str) -> dict[str, Any]:
    """Return the document of a job of which nothing is done yet.

    Args:
        job: Id of the bundle.

    Returns:
        ``evidence``; ``samples`` by digest; ``skipped``, ids with reasons; ``untimed``, ids whose evidence is of values
        alone because time ran out, which a resumed run does again.
    """
    return {"schema": SCHEMA, "job": job, "evidence": [], "samples": {}, "skipped": [], "untimed": []}


def write(file: Path, document: Mapping[str, Any], key: bytes) -> None:
    """Seal a document and write it; after a kill at any moment the file is the old one or the new one.

    Args:
        file: Where to.
        document: Without a seal, or with an older one.
        key: Of the job.

    Raises:
        OSError: It cannot be written.
    """
    made = {**document, "seal": seal_of(document, key)}
    body = (json.dumps(made, sort_keys=True, indent=1, ensure_ascii=True, allow_nan=False) + "\n").encode("ascii")
    staged = file.with_name(f".{file.name}.new")
    with staged.open("wb") as stream:
        stream.write(body)
        stream.flush()
        os.fsync(stream.fileno())
    staged.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read(file: Path, *, limit_bytes: int = 256 << 20) -> dict[str, Any]:
    """Read a document; its seal is not looked at.

    Args:
        file: Which.
        limit_bytes: Most that is read.

    Raises:
        SealError: It is no such document; says what was expected.
        OSError: It cannot be read.
    """
    with file.open("rb") as stream:
        body = stream.read(limit_bytes + 1)
    if len(body) > limit_bytes:
        raise SealError(f"expected at most {limit_bytes:,} bytes")
    try:
        found = json.loads(body, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise SealError(f"expected JSON, found: {error}") from error
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or not isinstance(found.get("job"), str):
        raise SealError("expected the evidence that a bundle writes")
    shapes = {"evidence": list, "samples": dict, "skipped": list, "untimed": list, "seal": str}
    for name, kind in shapes.items():
        if not isinstance(found.get(name), kind):
            raise SealError(f"field {name}: expected a {kind.__name__}")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands there twice")
    return made


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")
