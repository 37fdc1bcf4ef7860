"""Look at everything kernel-kb needs, and say what to do about what is missing."""

import importlib.util
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kb import catalogue, config
from kb.config import Root
from kb.errors import KbError
from kb.service import indexing
from kb.store import index, journal, layout

_EXTRAS = {
    "semantic": ("chromadb", "onnxruntime", "tokenizers"),
    "models": ("sentence_transformers",),
    "gpu": ("torch", "triton"),
    "serve": ("mcp", "fastapi", "uvicorn"),
}
_OLDEST = (3, 11)


@dataclass(frozen=True)
class Examination:
    """One thing that was looked at."""

    name: str
    state: Literal["ok", "problem", "note"]
    """``note``: not there, and not needed for what works now."""
    found: str
    next_step: str | None = None


def _python() -> Examination:
    found = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}, {sys.executable}"
    if sys.version_info < _OLDEST:
        return Examination("python", "problem", found, "install Python 3.11 or later")
    return Examination("python", "ok", found)


def _sqlite() -> Examination:
    try:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute("CREATE TABLE meta (key, value)")
            connection.execute(catalogue.CREATE_TEXT)
    except sqlite3.Error as error:
        found = f"SQLite {sqlite3.sqlite_version} without full-text search: {error}"
        return Examination("sqlite", "problem", found, "use a Python whose SQLite has FTS5")
    return Examination("sqlite", "ok", f"SQLite {sqlite3.sqlite_version} with FTS5")


def _git() -> Examination:
    path = shutil.which("git")
    if path is None:
        return Examination("git", "problem", "not found", "install git: older versions of entries come from it")
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return Examination("git", "problem", f"{path} does not run: {error}", "install git")
    return Examination("git", "ok", done.stdout.strip())


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _extras() -> Iterator[Examination]:
    for extra, modules in _EXTRAS.items():
        missing = [module for module in modules if not _installed(module)]
        if missing:
            found = f"not installed: {', '.join(missing)}"
            yield Examination(f"extra {extra}", "note", found, f'pip install "kernel-kb[{extra}]"')
        else:
            yield Examination(f"extra {extra}", "ok", ", ".join(modules))


def _folder(name: str, path: Path) -> Examination:
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".doctor"
        probe.write_text("", encoding="utf-8")
        probe.unlink()
    except OSError as error:
        variable = {"cache folder": "KB_CACHE_DIR", "settings folder": "KB_CONFIG_DIR"}.get(name, "KB_CACHE_DIR")
        step = f"set {variable} to a folder that can be written"
        return Examination(name, "problem", f"{path} cannot be written: {error.strerror}", step)
    return Examination(name, "ok", str(path))


def _entries(root: Root) -> Examination:
    survey = layout.survey(root.entries)
    found = f"{root.path}: {len(survey.found)} entries" + (" (came with the installation)" if root.packaged else "")
    if not root.packaged and journal.is_unfinished(root.entries):
        return Examination("entries", "problem", f"{found}; an addition was cut off or goes on now", "kb index")
    return Examination("entries", "ok", found)


def _catalogue(root: Root) -> Examination:
    files = [folder / catalogue.FILE for folder in config.derived_candidates(root)]
    odd = next((file for file in files if file.exists() and not file.is_file()), None)
    if odd is not None:
        return Examination("catalogue", "problem", f"{odd}: expected a file", f"remove {odd}")
    present = [file for file in files if file.is_file()]
    if not present:
        return Examination("catalogue", "note", "not built yet", "kb index, or just search")
    state = indexing.state_of(root, present[0])
    if state != "current":
        step = "kb index --rebuild" if state == "unreadable" else "kb index, or just search"
        return Examination("catalogue", "problem" if state == "unreadable" else "note", f"{present[0]}: {state}", step)
    left_out = indexing.left_out(present[0])
    if left_out:
        found = f"{present[0]}: {len(left_out)} left out, the first: {left_out[0].message}"
        return Examination("catalogue", "problem", found, "kb check")
    return Examination("catalogue", "ok", str(present[0]))


def _text_search(root: Root) -> Examination:
    file = next(each / catalogue.FILE for each in config.derived_candidates(root) if (each / catalogue.FILE).is_file())
    if index.text_is_whole(file):
        return Examination("full text", "ok", "its index agrees with its rows")
    return Examination("full text", "problem", f"{file}: the full-text index is damaged", "kb index --rebuild")


def _safely(name: str, look: Callable[[], Examination]) -> Examination:
    """Turn an error into a finding: an examination that dies tells nothing about the rest."""
    try:
        return look()
    except KbError as error:
        return Examination(name, "problem", error.message, error.hint)
    except OSError as error:
        return Examination(name, "problem", f"{error.filename or name}: {error.strerror}", "check its permissions")


def examine(asked: str | None = None) -> tuple[Examination, ...]:
    """Look at everything; never raises for what it finds.

    Args:
        asked: ``--root`` as given; None to find the knowledge base as every command does.

    Returns:
        One examination each, in the order in which to mend them.
    """
    results = [_python(), _sqlite(), _git()]
    results.append(_safely("settings folder", lambda: _folder("settings folder", config.config_folder())))
    results.append(_safely("cache folder", lambda: _folder("cache folder", config.cache_folder())))
    results.append(_safely("settings", lambda: Examination("settings", "ok", f"{len(config.read_settings())} set")))
    try:
        root = config.find_root(asked)
    except KbError as error:
        results.append(Examination("knowledge base", "problem", error.message, error.hint))
    else:
        results.append(_safely("entries", lambda: _entries(root)))
        state = _safely("catalogue", lambda: _catalogue(root))
        results.append(state)
        if state.state == "ok":
            results.append(_safely("full text", lambda: _text_search(root)))
    return (*results, *_extras())
