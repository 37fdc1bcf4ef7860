"""The files of a model: found in installed packages without running their code, and known by their hashes."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kb.errors import EmbedderUnavailableError

if TYPE_CHECKING:
    from kb.retrieval.embed import Matrix


@dataclass(frozen=True)
class Packaged:
    """A file of a model inside an installed package, known by its hash, whoever uploads the package."""

    name: str
    sha256: str
    places: tuple[tuple[str, str], ...]
    """Import name of a package and path in it; the first that exists is taken."""


def require_packages(names: Iterable[str], *, hint: str) -> None:
    """Refuse to go on without some packages; none of them is imported.

    Raises:
        EmbedderUnavailableError: One is missing.
    """
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise EmbedderUnavailableError(f"the embedder needs {', '.join(missing)}, which is not installed", hint=hint)


def package_folder(package: str) -> Path | None:
    """Return where a package lies, without running any of its code, or None."""
    spec = find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def find(file: Packaged, *, hint: str) -> Path:
    """Return where a packaged file lies.

    Raises:
        EmbedderUnavailableError: No installed package has it.
    """
    for package, inner in file.places:
        base = package_folder(package)
        if base is not None and (base / inner).is_file():
            return base / inner
    names = " or ".join(package for package, _ in file.places)
    raise EmbedderUnavailableError(f"{file.name} of the embedder is in no installed package: {names}", hint=hint)


def read(path: Path, *, hint: str) -> bytes:
    """Read a file of a model.

    Raises:
        EmbedderUnavailableError: It cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise EmbedderUnavailableError(f"cannot read {path}: {error.strerror}", hint=hint) from error


def require_hash(name: str, *, found: str, pinned: str, hint: str) -> None:
    """Refuse a file that is not the one that was tested.

    Raises:
        EmbedderUnavailableError: The hashes differ.
    """
    if found != pinned:
        message = f"{name} is not the file that was tested: expected sha256 {pinned[:12]}…, found {found[:12]}…"
        raise EmbedderUnavailableError(message, hint=hint)


def hash_folder(folder: Path, *, hint: str) -> tuple[tuple[str, str], ...]:
    """Return name and sha256 of every file of a model but its prose and hidden files, sorted.

    Raises:
        EmbedderUnavailableError: A file cannot be read.
    """
    found = []
    for path in folder.rglob("*"):
        inner = path.relative_to(folder)
        if path.is_file() and path.suffix.lower() != ".md" and not any(part.startswith(".") for part in inner.parts):
            found.append((inner.as_posix(), hash_file(path, hint=hint)))
    return tuple(sorted(found))


def hash_file(path: Path, *, hint: str) -> str:
    """Return the sha256 of a file.

    Raises:
        EmbedderUnavailableError: It cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EmbedderUnavailableError(f"cannot read {path}: {error.strerror}", hint=hint) from error


def unit(vector: "Matrix", *, hint: str) -> "Matrix":
    """Return a vector at length 1.

    Raises:
        EmbedderUnavailableError: It has no direction: zero, infinite or not a number.
    """
    import numpy as np

    found = np.asarray(vector, dtype=np.float32)
    length = np.linalg.norm(found)
    if not np.isfinite(length) or length == 0:
        raise EmbedderUnavailableError("the embedder returned a vector without direction", hint=hint)
    return np.asarray(found / length, dtype=np.float32)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, cut."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
