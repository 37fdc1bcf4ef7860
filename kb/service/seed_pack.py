"""Write a seed pack: a folder of its own, whole or not at all, and never over what it did not write itself."""

import glob
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from kb.config import Root
from kb.errors import ConfigError, StoreError
from kb.models.plan import Plan
from kb.store import content, layout
from kb.store.exchange import exchange
from kb.validators.operators.names import NAMES

MANIFEST = "manifest.json"
"""Says what the pack consists of, so that a later run knows its own files from anybody else's."""

_KIND = "kernel-kb seed pack"

_NEW, _OLD = ".new", ".old"
_ABANDONED_S = 3600.0
"""A folder that is being written and has not changed for so long is one of a run that was killed."""


def write(root: Root, plan: Plan, named: Iterable[str], folder: Path) -> tuple[str, ...]:
    """Write the pack of a plan.

    Args:
        root: The knowledge base, for the files of entries.
        plan: With its brief.
        named: Ids of the entries that the brief names; their files come along.
        folder: Where to; missing, empty, or an earlier pack that nobody has changed.

    Returns:
        Names of all files, relative to the folder, sorted.

    Raises:
        ConfigError: The folder holds files that no seed pack wrote, or changed ones.
        StoreError: It cannot be written.
    """
    made = _files(root, plan, named)
    made[MANIFEST] = _manifest(made)
    place = folder.expanduser().absolute()
    try:
        _recover(place)
        _refuse_foreign(place)
        if _same(place, made):
            return tuple(sorted(made))
        place.parent.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=_NEW, dir=place.parent))
        try:
            _fill(staged, made)
            _swap(staged, place)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
    except OSError as error:
        raise StoreError(f"cannot write {place}: {error.strerror}", hint="check space and permissions") from error
    return tuple(sorted(made))


def _files(root: Root, plan: Plan, named: Iterable[str]) -> dict[str, bytes]:
    shown = json.dumps(plan.to_json(), sort_keys=True, indent=2, ensure_ascii=True, allow_nan=False) + "\n"
    made = {"SEED.md": plan.brief.encode("utf-8"), "seed.json": shown.encode("ascii")}
    operators = {row.operator for row in plan.coverage}
    for entry_id in sorted(set(named)):
        read = content.read(layout.folder_of(root.entries, entry_id))
        made |= {f"entries/{entry_id}/{name}": body for name, body in read.files.items()}
        operators |= {row.operator for row in plan.rows if row.id == entry_id and row.operator is not None}
    specs = _specs()
    for operator in sorted(operators):
        if operator in NAMES:
            made[f"operators/{operator}.py"] = (specs / f"{operator}.py").read_bytes()
    return made


def _specs() -> Path:
    from kb.validators.operators import names

    return Path(names.__file__).parent


def _manifest(made: Mapping[str, bytes]) -> bytes:
    sums = {name: hashlib.sha256(body).hexdigest() for name, body in made.items()}
    text = json.dumps({"kind": _KIND, "schema": 1, "files": sums}, sort_keys=True, indent=2) + "\n"
    return text.encode("ascii")


def _refuse_foreign(place: Path) -> None:
    """Refuse a folder that holds anything but an unchanged earlier pack.

    Raises:
        ConfigError: It does.
    """
    hint = "choose a folder of its own, or move them away"
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise ConfigError(f"{place} is no folder of its own", hint=hint)
    if not place.is_dir():
        return
    there = {str(path.relative_to(place)): path for path in sorted(place.rglob("*")) if not _is_plain_folder(path)}
    if not there:
        return
    ours = _ours(place)
    for name, path in there.items():
        if name == MANIFEST and ours:
            continue
        if name not in ours:
            raise ConfigError(f"{place} holds {name}, which no seed pack wrote", hint=hint)
        if path.is_symlink() or hashlib.sha256(path.read_bytes()).hexdigest() != ours[name]:
            raise ConfigError(f"{place / name} was changed since it was written", hint=hint)


def _is_plain_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _ours(place: Path) -> dict[str, str]:
    """Return what an earlier pack wrote: name to sha256; nothing where there is no readable manifest."""
    try:
        read = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
        files = read["files"] if read["kind"] == _KIND else {}
        return {str(name): str(value) for name, value in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _same(place: Path, made: Mapping[str, bytes]) -> bool:
    if not (place / MANIFEST).is_file() or (place / MANIFEST).read_bytes() != made[MANIFEST]:
        return False
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()} == set(made)


def _fill(staged: Path, made: Mapping[str, bytes]) -> None:
    for name, body in made.items():
        file = staged / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as stream:
            stream.write(body)
            stream.flush()
            os.fsync(stream.fileno())
    staged.chmod(0o755)


def _swap(staged: Path, place: Path) -> None:
    """Put the new folder into the place of the old one, which is then where the new one was."""
    if not place.exists():
        staged.rename(place)
    elif not exchange(staged, place):
        _swap_in_steps(staged, place)


def _swap_in_steps(staged: Path, place: Path) -> None:
    """Do the same where two names cannot be swapped at once; on an error the old one is back, after a kill later."""
    old = place.with_name(f".{place.name}{_OLD}")
    place.rename(old)
    try:
        staged.rename(place)
    except OSError:
        old.rename(place)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _recover(place: Path) -> None:
    """Put back what a run that was killed had moved away, and remove what such runs have left."""
    old = place.with_name(f".{place.name}{_OLD}")
    if old.is_dir() and not place.exists():
        old.rename(place)
    shutil.rmtree(old, ignore_errors=True)
    for left in place.parent.glob(f".{glob.escape(place.name)}.*{_NEW}"):
        if time.time() - left.stat().st_mtime > _ABANDONED_S:
            shutil.rmtree(left, ignore_errors=True)
