"""What was put into which file, so that it can be taken out to the byte: offsets and digests, never the text."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kb.config import config_folder
from kb.service.kit import files
from kb.service.kit.splices import Insert, without
from kb.store.locks import locked
from kb.values import sha256

FILE = "agents.json"

_SCHEMA = 1


@dataclass(frozen=True)
class Receipt:
    """What one installation did to one file."""

    before: str | None
    """sha256 of the file before; None if there was none."""
    after: str
    """sha256 of the file as it was left."""
    inserts: tuple[tuple[int, int], ...]
    """Offset in the text before, and length, in characters; empty if text was replaced as well."""
    container: bool
    """What holds the server was not there before."""
    folders: tuple[str, ...]
    """Folders that were made for the file, outermost first."""

    def undone(self, text: str) -> str | None:
        """Return the text as it was before, or None if that can no longer be said.

        Args:
            text: The file as it is now.
        """
        if digest(text) != self.after or not self.inserts:
            return None
        found = without(text, self.inserts)
        if found is None or digest(found) != (self.before or digest("")):
            return None
        return found


def receipt(before: str | None, after: str, inserts: tuple[Insert, ...], **facts: Any) -> Receipt:  # noqa: ANN401
    """Make the receipt of an edit.

    Args:
        before: The text before; None if there was no file.
        after: The text as it was left.
        inserts: All that was put in.
        **facts: ``container`` and ``folders``.
    """
    places = tuple((one.at, len(one.text)) for one in inserts)
    return Receipt(None if before is None else digest(before), digest(after), places, **facts)


def digest(text: str) -> str:
    """Return the sha256 of a text, 64 hexadecimal digits."""
    return str(sha256(text.encode("utf-8")).hexdigest())


@contextmanager
def kept() -> Iterator[dict[str, Receipt]]:
    """Yield the receipts by path, to be changed; they are written when the block ends, also by an error.

    Raises:
        ConfigError: They cannot be written.
        StoreError: Another process holds them for too long.
    """
    folder = config_folder()
    files.make_folders(folder / FILE)
    with locked(folder / f"{FILE}.lock", wait_s=30.0):
        text = _text(folder / FILE)
        known = _read(text)
        old = dict(known)
        try:
            yield known
        finally:
            if known != old:
                rows = {path: asdict(one) for path, one in sorted(known.items())}
                made = json.dumps({"schema": _SCHEMA, "files": rows}, indent=2, sort_keys=True) + "\n"
                files.replace(folder / FILE, text, made if known else None, private=True)


def known() -> dict[str, Receipt]:
    """Return the receipts by path; none if they were lost."""
    return _read(_text(config_folder() / FILE))


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def _read(text: str | None) -> dict[str, Receipt]:
    """Read receipts; what is damaged counts as lost, because the files can be cleaned up without it as well."""
    try:
        rows = json.loads(text or "{}").get("files", {})
        return {str(path): _one(row) for path, row in rows.items()}
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        return {}


def _one(row: dict[str, Any]) -> Receipt:
    inserts = tuple((int(at), int(length)) for at, length in row["inserts"])
    folders = tuple(str(one) for one in row["folders"])
    before = None if row["before"] is None else str(row["before"])
    return Receipt(before, str(row["after"]), inserts, bool(row["container"]), folders)
