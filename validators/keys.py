"""The judge's key: signs records, never leaves the user's settings folder; public parts lie with the entries."""

import base64
import hashlib
import os
import tomllib
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kb.errors import ConfigError, EntryFormatError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEYRING = "keyring.toml"
_PRIVATE = "judge-key.pem"
_ID_DIGITS = 16


@dataclass(frozen=True)
class PublicKey:
    """One judge that the knowledge base knows."""

    id: str
    """First 16 hexadecimal digits of the sha256 of the raw key."""
    raw: bytes
    """32 bytes, Ed25519."""
    valid_from: date
    valid_until: date | None
    note: str

    def valid_at(self, when: datetime) -> bool:
        """Tell whether the key may sign at a time."""
        day = when.astimezone(UTC).date()
        return self.valid_from <= day and (self.valid_until is None or day <= self.valid_until)

    def verifies(self, message: bytes, signature: str) -> bool:
        """Tell whether a base64 signature over a message is this key's."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(base64.b64decode(signature, validate=True), message)
        except (InvalidSignature, ValueError):
            return False
        return True


class JudgeKey:
    """The private key of this user's judge."""

    def __init__(self, private: "Ed25519PrivateKey") -> None:
        self._private = private
        self.public = private.public_key().public_bytes_raw()
        self.id = key_id(self.public)

    def sign(self, message: bytes) -> str:
        """Return a base64 signature."""
        return base64.b64encode(self._private.sign(message)).decode("ascii")


def key_id(raw: bytes) -> str:
    """Return the id of a raw public key."""
    return hashlib.sha256(raw).hexdigest()[:_ID_DIGITS]


def own_key(folder: Path) -> JudgeKey:
    """Return this user's key, made on first use with mode 0600.

    Args:
        folder: The user's settings folder.

    Raises:
        ConfigError: It cannot be read, written, or is no key.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    file = folder / _PRIVATE
    try:
        if not file.is_file():
            made = Ed25519PrivateKey.generate().private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # A second judge that starts at the same moment must not replace the first one's key.
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(made)
        loaded = serialization.load_pem_private_key(file.read_bytes(), password=None)
    except FileExistsError:
        return own_key(folder)
    except (OSError, ValueError, TypeError) as error:
        hint = f"mend or move {file}; a new key is made on the next run"
        raise ConfigError(f"{file}: expected the judge's private key, found: {error}", hint=hint) from error
    if not isinstance(loaded, Ed25519PrivateKey):
        raise ConfigError(f"{file}: expected an Ed25519 key", hint=f"move {file}; a new key is made on the next run")
    return JudgeKey(loaded)


def read_keyring(entries: Path) -> dict[str, PublicKey]:
    """Return the judges that a knowledge base knows, by id; an absent keyring is an empty one.

    Raises:
        EntryFormatError: The keyring is broken; names the key and the field.
    """
    file = entries / KEYRING
    if not file.is_file():
        return {}
    try:
        rows = tomllib.loads(file.read_text(encoding="utf-8")).get("key", [])
    except (OSError, ValueError) as error:
        raise EntryFormatError(f"{file}: expected TOML, found: {error}", hint=f"mend {file}") from error
    found: dict[str, PublicKey] = {}
    for number, row in enumerate(rows, start=1):
        try:
            raw = base64.b64decode(row["public"], validate=True)
            key = PublicKey(row["id"], raw, row["valid_from"], row.get("valid_until"), row.get("note", ""))
            if len(raw) != 32 or key_id(raw) != key.id or not isinstance(key.valid_from, date):
                raise ValueError("id, public key and dates do not belong together")
        except (KeyError, TypeError, ValueError) as error:
            raise EntryFormatError(f"{file}: key {number}: {error}", hint=f"mend {file}") from error
        found[key.id] = key
    return found


def enrol(entries: Path, key: JudgeKey, *, today: date, note: str) -> bool:
    """Write the public part of a key into the keyring, unless it is there.

    Args:
        entries: Folder of the entries.
        key: The user's key.
        today: First day of its validity.
        note: For people: which judge this is.

    Returns:
        True if it was added.
    """
    if key.id in read_keyring(entries):
        return False
    import tomlkit

    file = entries / KEYRING
    document = tomlkit.parse(file.read_text(encoding="utf-8")) if file.is_file() else tomlkit.document()
    rows = document.get("key")
    if rows is None:
        rows = tomlkit.aot()
        document["key"] = rows
    row = tomlkit.table()
    row["id"] = key.id
    row["public"] = base64.b64encode(key.public).decode("ascii")
    row["valid_from"] = today
    row["note"] = note
    rows.append(row)
    staged = file.with_name(f".{KEYRING}.new")
    staged.write_text(tomlkit.dumps(document), encoding="utf-8")
    staged.replace(file)
    return True
