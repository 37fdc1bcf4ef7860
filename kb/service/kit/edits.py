"""One edit of one file for an agent: worked out first, then written, and written back if another one fails."""

import difflib
from dataclasses import dataclass
from pathlib import Path

from kb.config import config_folder
from kb.errors import ConfigError, KbError
from kb.service.kit import files, receipts
from kb.service.kit.ours import NAME
from kb.service.kit.receipts import Receipt
from kb.service.kit.splices import Editor, State, spliced
from kb.service.kit.tools import Place

KEPT = "kept"
"""Folder of copies, in the user's settings."""


@dataclass(frozen=True)
class Change:
    """What is done, or would be done, to one file."""

    file: Path
    """As people name it."""
    what: str
    """``created``, ``changed``, ``removed``, ``unchanged`` or ``left`` (it is not ours)."""
    diff: str
    """Unified; empty if nothing changes."""
    kept: Path | None = None
    """Where a copy lies of what was somebody else's or edited, and was replaced or taken away all the same."""


@dataclass(frozen=True)
class Edit:
    """One edit that was worked out and not written yet."""

    place: Place
    real: Path
    """Where the file really lies."""
    before: str | None
    """Its text; None if there is no file."""
    after: str | None
    """What it is to be; None for no file."""
    receipt: Receipt | None
    """What is noted of it; None to forget it."""
    what: str
    """As in :class:`Change`."""
    forced: bool = False
    """Whether it does away with what is not ours, or was edited."""

    @property
    def kept(self) -> Path | None:
        """Where a copy of what it does away with goes: a folder of ours, for its owner alone, by its content."""
        if not self.forced or self.before is None or self.before == self.after:
            return None
        return config_folder() / KEPT / f"{receipts.digest(self.before)[:12]}-{self.real.name[:80]}"


def opened(place: Place) -> tuple[Path, Editor, str | None, str, str]:
    """Return where a file lies, its editor, its text or None, its byte order mark, and its text without that.

    Raises:
        ConfigError: It cannot be read, or leads out of its folder.
    """
    real = files.real_place(place.base, place.relative)
    before = files.read(real)
    mark, text = files.parted(before or "")
    return real, place.form(str(place.shown)), before, mark, text


def put(place: Place, value: object, known: dict[str, Receipt], *, force: bool) -> Edit:
    """Work out how something is put into a file.

    Args:
        place: The file.
        value: A server, or a text.
        known: Receipts by path.
        force: Also over what is not ours, or was edited; a copy of the file is kept then.

    Raises:
        ConfigError: The file is not what its format says, or has something of this name that is not ours.
    """
    real, editor, before, mark, text = opened(place)
    state = editor.state(text, value)
    if state == "same":
        return Edit(place, real, before, before, known.get(str(real)), "unchanged")
    if state in ("foreign", "edited") and not force:
        raise _not_ours(place, state)
    forced = state in ("foreign", "edited")
    old = known.get(str(real))
    base = text
    if state != "absent":
        undone = None if old is None else old.undone(text)
        if undone is None or editor.state(undone, None) != "absent":
            after = mark + editor.replace(text, value)
            return Edit(place, real, before, after, _loose(old, before, after), "changed", forced)
        base = undone
    inserts = editor.add(base, value)
    after = spliced(base, inserts)
    first = state == "absent"
    created = before is None if first or old is None else old.before is None
    kept = receipts.receipt(
        None if created else base,
        after,
        inserts,
        container=not editor.holds(base),
        folders=() if first or old is None else old.folders,
    )
    return Edit(place, real, before, mark + after, kept, "created" if before is None else "changed", forced)


def _not_ours(place: Place, state: State) -> ConfigError:
    if place.is_server and state == "foreign":
        message = f"{place.shown}: a server {NAME} is there that is not this one"
    elif state == "foreign":
        message = f"{place.shown} is there, and is not by kb agent install"
    else:
        message = f"{place.shown}: the text for the agent was edited"
    return ConfigError(message, hint="--force replaces it; --dry-run shows what would change")


def _loose(old: Receipt | None, before: str | None, after: str) -> Receipt:
    """Return the receipt of an edit that cannot be undone to the byte: what was made at first is still known."""
    if old is None:
        return receipts.receipt(before, after, (), container=False, folders=())
    return Receipt(old.before, receipts.digest(after), (), old.container, old.folders)


def take(place: Place, known: dict[str, Receipt], *, force: bool) -> Edit:
    """Work out how what is ours is taken out of a file.

    Args:
        place: The file.
        known: Receipts by path.
        force: Also a text that was edited.

    Raises:
        ConfigError: The file is not what its format says.
    """
    real, editor, before, mark, text = opened(place)
    old = known.get(str(real))
    if before is None:
        return Edit(place, real, None, None, None, "unchanged")
    undone = None if old is None else old.undone(text)
    if old is not None and undone is not None:
        after = None if old.before is None else mark + undone
        return Edit(place, real, before, after, None, "removed" if after is None else "changed")
    state = editor.state(text, None)
    if state == "absent":
        return Edit(place, real, before, before, None, "unchanged")
    if state == "foreign" or (state == "edited" and not force):
        return Edit(place, real, before, before, old, "left")
    left = editor.remove(text, container=old is not None and old.container)
    is_empty = not left.strip() or left.strip() == "{}"
    # A file that is ours alone goes; one that others may use goes only if it is empty and was not there before.
    if editor.whole or (is_empty and (old is None or old.before is None)):
        return Edit(place, real, before, None, None, "removed", state == "edited")
    return Edit(place, real, before, mark + left, None, "changed", state == "edited")


def write(edit: Edit, known: dict[str, Receipt]) -> None:
    """Write an edit, and note it.

    Raises:
        ConfigError: The file changed in the meantime, or cannot be written; nothing was changed then.
    """
    path = str(edit.real)
    if edit.kept is not None:
        files.keep(edit.kept, edit.before or "")
    made: list[str] = []
    if edit.after != edit.before:
        made = files.make_folders(edit.real) if edit.after is not None else []
        try:
            files.replace(edit.real, edit.before, edit.after, private=edit.place.private)
        except KbError:
            files.drop_folders(made)
            raise
    old = known.get(path)
    if edit.receipt is None:
        known.pop(path, None)
        if old is not None and edit.after is None:
            files.drop_folders(list(old.folders))
    elif made:
        known[path] = Receipt(**{**vars(edit.receipt), "folders": tuple(made)})
    else:
        known[path] = edit.receipt


def write_back(edit: Edit, known: dict[str, Receipt]) -> None:
    """Undo a written edit, because a later one failed."""
    made = known.pop(str(edit.real), None)
    if edit.after != edit.before:
        files.make_folders(edit.real)
        files.replace(edit.real, edit.after, edit.before, private=edit.place.private)
        if edit.before is None and made is not None:
            files.drop_folders(list(made.folders))


def change(edit: Edit) -> Change:
    """Return an edit as it is shown to people."""
    if edit.before == edit.after:
        return Change(edit.place.shown, edit.what, "")
    old = (edit.before or "").splitlines(keepends=True)
    new = (edit.after or "").splitlines(keepends=True)
    name = str(edit.place.shown)
    lines = difflib.unified_diff(
        old, new, "/dev/null" if edit.before is None else name, "/dev/null" if edit.after is None else name
    )
    marked = (one if one.endswith("\n") else f"{one}\n\\ No newline at end of file\n" for one in lines)
    return Change(edit.place.shown, edit.what, "".join(marked), edit.kept)
