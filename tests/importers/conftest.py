"""How to import into an empty knowledge base, and what it holds then."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from kb.config import Root
from kb.service import importing

Run = Callable[..., importing.Report]


@pytest.fixture
def run(root: Root) -> Run:
    """Import a source."""

    def made(source: Path | str, *, write: bool = True, **given: object) -> importing.Report:
        wanted: dict[str, object] = {
            "format_": None, "stated": (None, None, None), "allow": [], "device": None, "toolchain": [], **given,
        }  # fmt: skip
        return importing.run(root, str(source), importing.options_of(write=write, **wanted))  # type: ignore[arg-type]

    return made


@pytest.fixture
def digest(root: Root) -> Callable[[], str]:
    """Digest of all that the knowledge base holds, names and bytes; what only a lock leaves does not count."""

    def made() -> str:
        state = hashlib.sha256()
        for path in sorted(root.path.rglob("*")):
            if ".kb" not in path.relative_to(root.path).parts and path.is_file():
                state.update(f"{path.relative_to(root.path)}\0".encode())
                state.update(path.read_bytes())
        return state.hexdigest()

    return made
