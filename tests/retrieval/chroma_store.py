"""Vectors made at random and the indices that follow them, for the tests of Chroma."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from kb.retrieval import vectors
from kb.retrieval.chroma import ChromaFolder, ChromaServer
from kb.retrieval.embed import Space
from kb.store.locks import locked

DIM = 16
SPACE = Space("test", DIM, (("model", "00"),), "by hand")

Index = ChromaFolder | ChromaServer


def finds_everything(index: Index, found: vectors.Vectors) -> bool:
    """Ask for every vector by itself."""
    return all(index.search(found.matrix[row], limit=1)[0][0] == one for one, row in found.rows.items())


def same(one: list[tuple[str, float]], other: list[tuple[str, float]]) -> bool:
    return [entry for entry, _ in one] == [entry for entry, _ in other] and bool(
        np.allclose([score for _, score in one], [score for _, score in other], atol=1e-5)
    )


def answered_by_chroma(caplog: pytest.LogCaptureFixture) -> bool:
    return not [record for record in caplog.records if record.name == "kb.retrieval.chroma"]


def store(folder: Path, count: int, *, seed: int = 0, space: Space = SPACE) -> vectors.Vectors:
    random = np.random.default_rng(seed)
    matrix = random.normal(size=(count, DIM)).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return vectors.save(folder, space, {f"kernel/x/e-{n:04}": (f"{seed}", matrix[n]) for n in range(count)})


def embedded(folder: Path) -> ChromaFolder:
    return ChromaFolder(folder, partial(vectors.load, folder), lock=partial(locked, folder / "chroma.lock"))
