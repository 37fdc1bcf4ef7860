"""Where things are: the knowledge base, its derived files, the user's settings. Standard library only."""

import os
from collections.abc import Mapping
from pathlib import Path

from kb.errors import ConfigError
from kb.values import Frozen, sha256

MARKER = "kb.toml"
"""A file of this name beside ``entries/`` marks a knowledge base, also an empty one."""

_KIND_FOLDERS = ("kernel", "allocation", "comm", "config", "technique", "combination", "target", "campaign")


class Root(Frozen):
    """A knowledge base on disk."""

    path: Path
    """Folder that holds ``entries/``."""
    packaged: bool = False
    """True for the starter entries that came with the installation: never written to."""

    @property
    def entries(self) -> Path:
        """Folder of all entries."""
        return self.path / "entries"


def starter() -> Root:
    """Return the starter knowledge base that came with this installation.

    Raises:
        ConfigError: The installation is incomplete.
    """
    package = Path(__file__).resolve().parent
    if (package / "starter" / "entries").is_dir():
        return Root(package / "starter", packaged=True)
    if (package.parent / "entries").is_dir():
        return Root(package.parent)
    raise ConfigError(
        "the starter entries are missing from this installation", hint="pip install --force-reinstall kernel-kb"
    )


def is_root(path: Path) -> bool:
    """Tell whether a folder is a knowledge base: a marker, or ``entries/`` with a folder of a known kind."""
    entries = path / "entries"
    return entries.is_dir() and ((path / MARKER).is_file() or any((entries / kind).is_dir() for kind in _KIND_FOLDERS))


def find_root(asked: str | None = None, *, start: Path | None = None) -> Root:
    """Find the knowledge base to use.

    Args:
        asked: ``--root``, or None to look at ``KB_ROOT``, then upwards from ``start``, then at the starter entries.
        start: Folder to look upwards from; the current one if None.

    Returns:
        The knowledge base.

    Raises:
        ConfigError: ``asked`` or ``KB_ROOT`` is not one.
    """
    named = asked or os.environ.get("KB_ROOT")
    if named:
        path = Path(named).expanduser().resolve()
        if not is_root(path):
            origin = "--root" if asked else "KB_ROOT"
            raise ConfigError(f"no knowledge base at {path} ({origin}): entries/ is missing", hint=f"kb init {named}")
        packaged = starter()
        return packaged if packaged.packaged and path == packaged.path else Root(path)
    try:
        here = (start or Path.cwd()).resolve()
    except OSError:
        return starter()
    for folder in (here, *here.parents):
        if is_root(folder):
            return Root(folder)
    return starter()


def _base(variable: str, xdg: str, fallback: str) -> Path:
    named = os.environ.get(variable)
    if named:
        return Path(named).expanduser()
    base = os.environ.get(xdg)
    home = Path(base) if base else Path(os.path.expanduser("~")) / fallback  # noqa: PTH111 - Path.home raises without HOME
    return home / "kernel-kb"


def config_folder() -> Path:
    """Return the user's settings folder: ``KB_CONFIG_DIR``, else ``$XDG_CONFIG_HOME/kernel-kb``."""
    return _base("KB_CONFIG_DIR", "XDG_CONFIG_HOME", ".config")


def cache_folder() -> Path:
    """Return the user's cache folder: ``KB_CACHE_DIR``, else ``$XDG_CACHE_HOME/kernel-kb``."""
    return _base("KB_CACHE_DIR", "XDG_CACHE_HOME", ".cache")


def _usable(folder: Path) -> bool:
    import tempfile

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def derived_candidates(root: Root) -> tuple[Path, ...]:
    """Return the folders that may hold derived files of ``root``, best first: ``.kb/``, then the user's cache."""
    name = sha256(str(root.path).encode()).hexdigest()[:16]
    cached = cache_folder() / name
    return (cached,) if root.packaged else (root.path / ".kb", cached)


def derived_folder(root: Root) -> Path:
    """Return a writable folder for derived files, made if it is missing.

    Raises:
        ConfigError: Neither ``.kb/`` nor the cache folder can be written.
    """
    candidates = derived_candidates(root)
    for folder in candidates:
        if _usable(folder):
            return folder
    tried = " nor ".join(str(folder) for folder in candidates)
    raise ConfigError(f"cannot write the catalogue to {tried}", hint="set KB_CACHE_DIR to a folder that can be written")


def read_settings() -> Mapping[str, object]:
    """Read the user's settings; an absent file is no settings.

    Raises:
        ConfigError: The file is not TOML or not text.
    """
    file = config_folder() / "config.toml"
    if not file.is_file():
        return {}
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: expected TOML, found {error}", hint=f"mend or remove {file}") from error
