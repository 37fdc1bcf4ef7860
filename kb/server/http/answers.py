"""How answers go out: JSON with an entity tag, or 304 where the client has them already."""

import hashlib
import json
import math
from collections.abc import Mapping

from fastapi import Request, Response

CACHE = "private, no-cache"
"""Caches may keep an answer, and have to ask whether it still holds."""


def tag_of(*parts: str) -> str:
    """Return a weak entity tag of what an answer depends on."""
    return f'W/"{hashlib.sha256(chr(0).join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]}"'


def tag_of_request(request: Request, state: str) -> str:
    """Return the tag of an answer that depends on the state of the knowledge base and the request alone."""
    return tag_of(state, request.url.path, request.url.query)


def has(request: Request, tag: str) -> bool:
    """Tell whether the client says that it has the answer with this tag."""
    given = request.headers.get("if-none-match", "")
    if len(given) > 4_000:
        return False
    bare = tag.removeprefix("W/")
    return given.strip() == "*" or any(one.strip().removeprefix("W/") == bare for one in given.split(","))


def unchanged(tag: str) -> Response:
    """Return the answer to a client that has it already."""
    return Response(status_code=304, headers={"ETag": tag, "Cache-Control": CACHE})


def encoded(value: object) -> bytes:
    """Return a value as compact JSON; ASCII alone, so that stored text cannot break a line or a terminal."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")
    except ValueError:
        return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False).encode("ascii")


def _finite(value: object) -> object:
    """Return a value in which infinities and what is no number are null: TOML can say them, JSON cannot."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


def sent(body: bytes, tag: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return JSON with its tag."""
    return Response(
        body, media_type="application/json", headers={"ETag": tag, "Cache-Control": CACHE, **(headers or {})}
    )


def by_content(request: Request, body: bytes) -> Response:
    """Return JSON whose tag is that of its content, or 304."""
    tag = tag_of(body.decode("ascii"))
    return unchanged(tag) if has(request, tag) else sent(body, tag)
