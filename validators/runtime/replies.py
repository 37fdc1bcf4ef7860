"""What a worker's replies may look like. Everything else is a broken protocol, and never an error of the judge."""

import math
from dataclasses import dataclass
from typing import Any

from kb.validators.runtime import report

_MOST = 4096
"""Most entries of a list or table that are read."""


class ForgedReplyError(Exception):
    """A reply has not the form that the stub gives it."""


@dataclass(frozen=True)
class Claim:
    """What a worker says of one result."""

    plain: bool
    kind: str
    """Name of the type, foreign text."""
    is_tensor: bool
    dtype: str = ""
    shape: tuple[int, ...] = ()
    device: str = ""
    offset: int = 0
    size_bytes: int = 0


def failure(reply: dict[str, Any]) -> str | None:
    """Return what a candidate raised, made safe to show; None if the reply is no failure."""
    if "error" not in reply:
        return None
    error = reply["error"]
    if not isinstance(error, dict):
        raise ForgedReplyError("an error that is no object")
    kind, message = error.get("type"), error.get("message")
    if not isinstance(kind, str) or not isinstance(message, str):
        raise ForgedReplyError("an error without text")
    return report.escaped(f"{kind}: {message}", 500)


def reading(raw: object) -> float | None:
    """Return a worker's own reading, or None where it is no time at all."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not math.isfinite(raw) or not 0 <= raw < 1e12:
        return None
    return float(raw)


def is_out_of_memory(detail: str) -> bool:
    """Tell whether a failure may be that there was no memory left, which others may have taken.

    On the device that is an error; on the host the kernel ends the process that is the first to go, a worker.
    """
    return "out of memory" in detail.lower() or "OutOfMemoryError" in detail or detail.endswith("ended: SIGKILL")


def claims(reply: dict[str, Any]) -> list[Claim]:
    """Return what a reply claims of each result."""
    raw = reply.get("outputs")
    if not isinstance(raw, list) or len(raw) > _MOST:
        raise ForgedReplyError("a reply without outputs")
    return [_claim(one) for one in raw]


def _claim(raw: object) -> Claim:
    if not isinstance(raw, dict) or not isinstance(raw.get("plain"), bool) or not isinstance(raw.get("type"), str):
        raise ForgedReplyError("an output that is no claim")
    if "dtype" not in raw:
        return Claim(raw["plain"], raw["type"], is_tensor=False)
    shape = raw.get("shape")
    if not isinstance(shape, list) or not all(_whole(one) for one in shape):
        raise ForgedReplyError("an output without a shape")
    if not isinstance(raw["dtype"], str) or not isinstance(raw.get("device"), str):
        raise ForgedReplyError("an output without dtype and device")
    if not _whole(raw.get("offset")) or not _whole(raw.get("size_bytes")):
        raise ForgedReplyError("an output without a place")
    return Claim(
        raw["plain"], raw["type"], is_tensor=True, dtype=raw["dtype"], shape=tuple(shape), device=raw["device"],
        offset=raw["offset"], size_bytes=raw["size_bytes"],
    )  # fmt: skip


def numbers(reply: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the numbers that a worker gives for the results of each call, as the short texts that they are."""
    raw = reply.get("calls")
    if not isinstance(raw, list) or len(raw) > _MOST:
        raise ForgedReplyError("calls without numbers")
    for one in raw:
        if not isinstance(one, list) or len(one) > _MOST or not all(isinstance(n, str) and len(n) < 24 for n in one):
            raise ForgedReplyError("a result that is not answered for by a number")
    return [tuple(one) for one in raw]


def names(reply: dict[str, Any], key: str) -> list[str]:
    """Return a list of texts."""
    raw = reply.get(key, [])
    if not isinstance(raw, list) or len(raw) > _MOST or not all(isinstance(one, str) for one in raw):
        raise ForgedReplyError(f"{key} is no list of names")
    return list(raw)


def counts(reply: dict[str, Any], key: str) -> dict[str, int]:
    """Return a table of whole numbers."""
    raw = reply.get(key, {})
    if not isinstance(raw, dict) or len(raw) > _MOST or not all(_whole(one) for one in raw.values()):
        raise ForgedReplyError(f"{key} is no table of counts")
    return dict(raw)


def groups(reply: dict[str, Any], key: str) -> dict[str, list[str]]:
    """Return a table of lists of texts."""
    raw = reply.get(key, {})
    if not isinstance(raw, dict) or len(raw) > _MOST:
        raise ForgedReplyError(f"{key} is no table")
    return {str(name): names(raw, name) for name in raw}


def parameters(reply: dict[str, Any], key: str) -> dict[str, dict[str, Any]]:
    """Return a table of tables of plain values, made safe to show: at most 32 of a name, texts of 40 characters."""
    raw = reply.get(key, {})
    if not isinstance(raw, dict) or len(raw) > _MOST or not all(isinstance(one, dict) for one in raw.values()):
        raise ForgedReplyError(f"{key} is no table of parameters")
    return {report.escaped(name, 80): _plain(one) for name, one in raw.items()}


def _plain(raw: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in list(raw.items())[:32]:
        if isinstance(value, str):
            kept[report.escaped(name, 40)] = report.escaped(value, 40)
        elif isinstance(value, bool) or (isinstance(value, int) and abs(value) < 1 << 62):
            kept[report.escaped(name, 40)] = value
        else:
            raise ForgedReplyError(f"the parameter {report.escaped(name, 40)} is no plain value")
    return kept


def kernel_rows(reply: dict[str, Any]) -> list[list[Any]]:
    """Return rows of name, launches and microseconds; none from a call that failed."""
    if failure(reply) is not None:
        return []
    raw = reply.get("kernels")
    if not isinstance(raw, list) or len(raw) > _MOST:
        raise ForgedReplyError("a profile without kernels")
    for row in raw:
        if not isinstance(row, list) or len(row) != 3 or not isinstance(row[0], str) or not _whole(row[1]):
            raise ForgedReplyError("a kernel that is none")
        if not isinstance(row[2], float | int) or not 0 <= row[2] < 1e12:
            raise ForgedReplyError("a kernel without a time")
    return [[report.escaped(row[0], 120), row[1], float(row[2])] for row in raw]


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62
