"""A Chroma index that was damaged or deleted is rebuilt, and nobody notices but the log."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kb.retrieval import chroma, vectors
from kb.retrieval.chroma import Changes, ChromaFolder
from tests.retrieval.chroma_store import answered_by_chroma, embedded, finds_everything, same, store


@pytest.fixture
def index(tmp_path: Path) -> Iterator[ChromaFolder]:
    made = embedded(tmp_path)
    yield made
    made.close()


def _remove(folder: Path) -> None:
    shutil.rmtree(folder / chroma.FOLDER)


def _a_file_instead(folder: Path) -> None:
    _remove(folder)
    (folder / chroma.FOLDER).write_bytes(b"")


def _damage(pattern: str, how: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        file = next((folder / chroma.FOLDER).rglob(pattern))
        if how == "removed":
            file.unlink()
        elif how == "empty":
            os.truncate(file, 0)
        else:
            body = bytearray(file.read_bytes())
            middle = len(body) // 2
            body[:600] = b"garbage!" * 75
            body[middle : middle + 8] = b"garbage!"
            file.write_bytes(bytes(body))

    return apply


DAMAGE: dict[str, Callable[[Path], None]] = {
    "folder removed": _remove,
    "a file instead": _a_file_instead,
    "state removed": lambda folder: (folder / chroma.STATE).unlink(),
    "state is junk": lambda folder: (folder / chroma.STATE).write_bytes(b"[1"),
} | {
    f"{pattern} {how}": _damage(pattern, how)
    for pattern in ("chroma.sqlite3", "data_level0.bin", "index_metadata.pickle")
    for how in ("removed", "empty", "overwritten")
}  # fmt: skip


@pytest.mark.parametrize("what", list(DAMAGE))
def test_a_damaged_index_is_rebuilt(tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture) -> None:
    found = store(tmp_path, 25)
    first = embedded(tmp_path)
    assert first.sync() == Changes(25, 0, rebuilt=True)
    first.close()
    DAMAGE[what](tmp_path)
    second = embedded(tmp_path)
    assert same(second.search(found.matrix[4], limit=6), found.search(found.matrix[4], limit=6))
    second.close()
    caplog.clear()
    third = embedded(tmp_path)
    assert third.sync() == Changes(0, 0, rebuilt=False)
    assert finds_everything(third, found)
    third.close()
    assert answered_by_chroma(caplog)


def test_damage_under_an_open_reader_is_healed_at_its_next_query(tmp_path: Path, index: ChromaFolder) -> None:
    found = store(tmp_path, 25)
    assert len(index.search(found.matrix[0], limit=3)) == 3
    _remove(tmp_path)
    store(tmp_path, 26)
    grown = vectors.load(tmp_path)
    assert same(index.search(found.matrix[4], limit=6), grown.search(found.matrix[4], limit=6))
    assert finds_everything(index, grown)
