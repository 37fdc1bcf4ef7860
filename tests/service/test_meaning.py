"""Embedding goes on beside the questions: nobody waits for it, and whoever is answered without it is told so."""

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kb.config import Root, derived_folder
from kb.errors import StoreError
from kb.models.hit import Answer
from kb.retrieval import models
from kb.retrieval.embed import Space
from kb.service import meaning
from kb.service.resident import Resident
from kb.service.searching import Filters
from kb.store.locks import locked

WriteEntry = Callable[..., Path]


class Gated:
    """Embeds only while its gate is open."""

    def __init__(self) -> None:
        self.space = Space("gated", 4, (), "counts letters")
        self.gate = threading.Event()
        self.asked = threading.Event()
        self.embedded = 0

    def embed(self, texts: Sequence[str]) -> Any:  # noqa: ANN401 - a matrix
        self.asked.set()
        assert self.gate.wait(60)
        self.embedded += len(texts)
        rows = np.array([[1.0 + text.count(letter) for letter in "aeio"] for text in texts], dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def embed_query(self, text: str) -> Any:  # noqa: ANN401
        return self.embed([text])[0]


@pytest.fixture
def gated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gated]:
    made = Gated()
    monkeypatch.setattr(models, "open_embedder", lambda _setting, **_more: made)
    monkeypatch.setattr("kb.service.embedding._chroma", lambda *_: None)
    monkeypatch.setattr(meaning, "_SAY_S", 0.0)
    yield made
    made.gate.set()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def resident(root: Root, write_entry: WriteEntry, gated: Gated, said: list[str]) -> Iterator[Resident]:
    for number in range(3):
        write_entry(root.entries, f"kernel/rmsnorm/row-{number}")
    made = Resident(root, semantic=True, say=said.append)
    yield made
    gated.gate.set()
    made.wait(60)
    made.close()


def search(resident: Resident) -> Answer:
    return resident.search("rmsnorm", filters=Filters(), limit=20)


def test_questions_are_answered_by_words_while_texts_are_embedded(
    resident: Resident, gated: Gated, said: list[str]
) -> None:
    assert len(search(resident).hits) == 3
    assert gated.asked.wait(60)
    answer = search(resident)
    assert len(answer.hits) == 3
    assert answer.notes == ("found by words alone: embeddings are still being loaded (0 of 3 texts)",)
    assert (resident.meaning, resident.embedding) == ("loading", (0, 3))
    before = resident.state()
    gated.gate.set()
    assert resident.wait(60)
    assert search(resident).notes == ()
    assert (resident.meaning, resident.embedding) == ("on", None)
    assert resident.state() != before
    assert said[0] == "embedding 3 texts for search by meaning; until then words alone are searched"
    assert said[1] == "embedded 3 of 3 texts"
    assert said[2].startswith("search by meaning is ready: 3 texts embedded in ")


def test_nothing_is_said_where_nothing_has_to_be_embedded(
    resident: Resident, root: Root, gated: Gated, said: list[str]
) -> None:
    gated.gate.set()
    assert resident.wait(60)
    said.clear()
    again = Resident(root, semantic=True, say=said.append)
    assert again.wait(60)
    again.close()
    assert said == []


def test_a_few_changes_are_embedded_at_once_and_many_beside_the_questions(
    resident: Resident, root: Root, gated: Gated, said: list[str], write_entry: WriteEntry
) -> None:
    gated.gate.set()
    assert resident.wait(60)
    write_entry(root.entries, "kernel/rmsnorm/new")
    answer = search(resident)
    assert (len(answer.hits), answer.notes) == (4, ())
    gated.gate.clear()
    gated.asked.clear()
    for number in range(meaning.AT_ONCE + 1):
        write_entry(root.entries, f"kernel/rmsnorm/more-{number}")
    answer = search(resident)
    assert len(answer.hits) == 4 + meaning.AT_ONCE + 1
    assert answer.notes[0].startswith("found by words alone: embeddings are still being loaded")
    assert gated.asked.wait(60)
    assert resident.embedding == (0, meaning.AT_ONCE + 1)
    gated.gate.set()
    assert resident.wait(60)
    assert search(resident).notes == ()


def test_nobody_waits_for_another_process_that_embeds(
    resident: Resident, root: Root, gated: Gated, write_entry: WriteEntry
) -> None:
    gated.gate.set()
    assert resident.wait(60)
    write_entry(root.entries, "kernel/rmsnorm/new")
    with locked(derived_folder(root) / "vectors.lock"):
        answer = search(resident)
        assert len(answer.hits) == 4
        assert answer.notes[0].startswith("found by words alone: ")
    assert resident.wait(60)
    assert search(resident).notes == ()


def test_what_cannot_be_embedded_leaves_words(
    resident: Resident, gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StoreError("cannot write vectors")

    monkeypatch.setattr("kb.service.embedding.ensure_vectors", full)
    gated.gate.set()
    assert not resident.wait(60)
    answer = search(resident)
    assert (resident.meaning, answer.notes, len(answer.hits)) == ("unavailable", (), 3)


def test_closing_gives_up_what_is_being_embedded(resident: Resident, gated: Gated) -> None:
    search(resident)
    assert gated.asked.wait(60)
    resident.close()
    gated.gate.set()
    assert not resident.wait(60)
    assert gated.embedded == 3
