"""Tokens of the HTTP endpoint: who may read, write and have candidates judged. Only digests are kept.

A token is ``kb_<id>_<secret>``: 12 hexadecimal digits that name it, and 256 random bits. Digests of so long a secret
cannot be turned back, so a plain sha256 will do; a slow hash would only slow down every request.
"""

import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kb.config import config_folder
from kb.errors import ConfigError
from kb.store.locks import locked

SCOPES = ("read", "write", "judge")
"""What a token may allow: reading; filing submissions and outcomes; having candidates judged."""

FILE = "tokens.json"
SCHEMA = 1

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_TOKEN = re.compile(r"kb_[0-9a-f]{12}_[A-Za-z0-9_-]{43}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(r"[0-9a-f]{12}")
_SPELLED = "letters, digits, . _ and -, at most 64, none of the marks at an end"


@dataclass(frozen=True)
class Token:
    """What is kept of one token."""

    name: str
    """Who holds it; also the author of what is submitted with it."""
    id: str
    """The part of the token that is no secret, 12 hexadecimal digits."""
    sha256: str
    """Of the whole token."""
    scopes: tuple[str, ...]
    created_utc: str
    expires_utc: str | None = None
    """ISO 8601; None for never."""

    def is_valid(self, now: datetime) -> bool:
        """Tell whether it has not run out."""
        return self.expires_utc is None or now < datetime.fromisoformat(self.expires_utc)


@dataclass(frozen=True)
class New:
    """A token that was just made; its text is shown once and kept nowhere."""

    text: str
    token: Token


def tokens_file() -> Path:
    """Return where digests of tokens are kept."""
    return config_folder() / FILE


def all_tokens() -> tuple[Token, ...]:
    """Return every token by name; none if there is no file.

    Raises:
        ConfigError: The file is damaged, or other users can read it.
    """
    file = tokens_file()
    try:
        with file.open("rb") as stream:
            if os.name == "posix" and os.fstat(stream.fileno()).st_mode & 0o077:
                raise ConfigError(f"{file}: other users can read or change it", hint=f"chmod 600 {file}")
            raw = json.loads(stream.read(1 << 20))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: expected tokens, found: {error}", hint=f"mend or remove {file}") from error
    return _parsed(file, raw)


def _parsed(file: Path, raw: Any) -> tuple[Token, ...]:  # noqa: ANN401 - whatever the file says
    try:
        if raw["schema"] != SCHEMA:
            raise ValueError(f"schema {raw['schema']}")
        found = tuple(_token(row) for row in raw["tokens"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{file}: expected tokens, found: {error!r}", hint=f"mend or remove {file}") from error
    return found


def _token(row: Mapping[str, Any]) -> Token:
    token = Token(**{**row, "scopes": tuple(row["scopes"])})
    datetime.fromisoformat(token.created_utc)
    if token.expires_utc is not None and datetime.fromisoformat(token.expires_utc).tzinfo is None:
        raise ValueError(f"{token.name}: a time without its zone")
    if not (_NAME.fullmatch(token.name) and _ID.fullmatch(token.id) and _DIGEST.fullmatch(token.sha256)):
        raise ValueError(f"{token.name}: a field has another form")
    if not token.scopes or not set(token.scopes) <= set(SCOPES):
        raise ValueError(f"{token.name}: unknown scopes")
    return token


def new_token(name: str, scopes: Sequence[str], *, days: float | None = None) -> New:
    """Make a token and keep its digest.

    Args:
        name: Who will hold it.
        scopes: What it allows; ``write`` and ``judge`` include ``read``.
        days: After how many days it runs out; None for never.

    Raises:
        ConfigError: The name is taken or none, a scope is unknown, or the file cannot be read or written.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"the name {name[:80]!r} is none: expected {_SPELLED}", hint="kb token new ci --scope read")
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        raise ConfigError(
            f"no scope is called {unknown[0][:40]!r}" if unknown else "no scope is given",
            hint=f"--scope {'|'.join(SCOPES)}, may be repeated",
        )
    if days is not None and not 0 < days <= 36_500:
        raise ConfigError(f"{days:g} days: expected more than 0, at most 36,500", hint="--days 90")
    allowed = tuple(scope for scope in SCOPES if scope in {"read", *scopes})
    now = datetime.now(UTC).replace(microsecond=0)
    token_id = secrets.token_hex(6)
    text = f"kb_{token_id}_{secrets.token_urlsafe(32)}"
    expires = None if days is None else (now + timedelta(days=days)).isoformat()
    made = Token(name, token_id, digest_of(text), allowed, now.isoformat(), expires)
    with _changing():
        before = all_tokens()
        same = next((one for one in before if one.name == name), None)
        if same is not None and not same.is_valid(now):
            raise ConfigError(f"the token {name} ran out on {str(same.expires_utc)[:10]}", hint=renewal_of(same))
        if same is not None:
            raise ConfigError(f"there is a token called {name} already", hint=f"kb token revoke {name}")
        _write((*before, made))
    return New(text, made)


def renewal_of(token: Token) -> str:
    """Return the commands that replace a token by one with the same scopes; a secret is never used again."""
    wanted = [one for one in token.scopes if one != "read"] or ["read"]
    scopes = " ".join(f"--scope {one}" for one in wanted)
    return f"kb token revoke {token.name}; kb token new {token.name} {scopes} --days 90"


def revoke(name: str) -> Token:
    """Forget a token; a running server refuses it from the next request on.

    Args:
        name: Its name or id.

    Raises:
        ConfigError: There is none, or the file cannot be read or written.
    """
    with _changing():
        before = all_tokens()
        gone = next((one for one in before if name in (one.name, one.id)), None)
        if gone is None:
            known = ", ".join(one.name for one in before) or "none"
            raise ConfigError(f"there is no token called {name[:80]!r}", hint=f"known: {known}")
        _write(tuple(one for one in before if one != gone))
    return gone


def digest_of(text: str) -> str:
    """Return what is kept of a token."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def match(text: str, known: Sequence[Token], *, now: datetime | None = None) -> Token | None:
    """Return the token that a client sent, if it is one and has not run out.

    Compared are digests, each in constant time and all of them, so that the time taken says nothing.

    Args:
        text: As sent.
        known: Every token.
        now: The time; the clock if None.
    """
    sent = digest_of(text if _TOKEN.fullmatch(text) else "")
    found = None
    for one in known:
        if hmac.compare_digest(sent, one.sha256):
            found = one
    return found if found is not None and found.is_valid(now or datetime.now(UTC)) else None


class Tokens:
    """The tokens as a server sees them: read anew whenever the file changes."""

    def __init__(self) -> None:
        """Read nothing yet."""
        self._stamp: tuple[int, int, int] | None = None
        self._known: tuple[Token, ...] = ()
        self._read = False

    def known(self) -> tuple[Token, ...]:
        """Return every token.

        Raises:
            ConfigError: The file is damaged, or other users can read it. Nobody is let in then.
        """
        try:
            stat = tokens_file().stat()
            stamp: tuple[int, int, int] | None = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        except OSError:
            stamp = None
        if not self._read or stamp != self._stamp:
            self._known = all_tokens()
            self._stamp, self._read = stamp, True
        return self._known

    def match(self, text: str) -> Token | None:
        """Return the token that a client sent, if it is one.

        Raises:
            ConfigError: As for :meth:`known`.
        """
        return match(text, self.known())


def _changing() -> Any:  # noqa: ANN401 - a context manager
    folder = config_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"cannot make {folder}: {error.strerror}", hint="set KB_CONFIG_DIR") from error
    return locked(folder / "tokens.lock")


def _write(tokens: Sequence[Token]) -> None:
    file = tokens_file()
    rows = [asdict(one) for one in sorted(tokens, key=lambda one: one.name)]
    body = json.dumps({"schema": SCHEMA, "tokens": rows}, indent=2, sort_keys=True) + "\n"
    try:
        # mkstemp makes its file with mode 0600, and renaming keeps that.
        handle, part = tempfile.mkstemp(dir=file.parent, prefix=FILE, suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(body)
                stream.flush()
                os.fsync(stream.fileno())
            Path(part).replace(file)
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}", hint="check free space and permissions") from error
