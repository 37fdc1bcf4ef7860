"""Chroma gives what the vectors give, embedded and as a server, whatever other processes and damage do to it."""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from kb.errors import ConfigError, RetrievalError, StoreError
from kb.retrieval import chroma_records, vectors
from kb.retrieval.chroma import Changes, ChromaFolder, ChromaServer
from kb.retrieval.embed import Space
from kb.store.locks import locked
from tests.retrieval.chroma_store import DIM, SPACE, answered_by_chroma, embedded, finds_everything, same, store

REPOSITORY = Path(__file__).parent.parent.parent
OTHER = Space("test", DIM, (("model", "01"),), "by hand")

# What a node does that adds an entry: read, add, write and sync, each step under its lock.
ADDER = """
import sys
from functools import partial
from pathlib import Path
import numpy as np
from kb.retrieval import vectors
from kb.retrieval.chroma import ChromaFolder, ChromaServer
from kb.retrieval.embed import Space
from kb.store.locks import locked

folder, url, name, count = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
space = Space("test", 16, (("model", "00"),), "by hand")
source = partial(vectors.load, folder)
index = ChromaServer(url, source) if url else ChromaFolder(folder, source, lock=partial(locked, folder / "chroma.lock"))
random = np.random.default_rng(sum(map(ord, name)))
for turn in range(count):
    made = random.normal(size=16).astype("float32")
    with locked(folder / "vectors.lock"):
        old = vectors.load(folder)
        rows = {one: (old.digests[row], old.matrix[row]) for one, row in old.rows.items()}
        rows[f"kernel/{name}/e-{turn:04}"] = ("d", made / np.linalg.norm(made))
        vectors.save(folder, space, rows)
    index.sync()
    print(turn, flush=True)
index.close()
"""


def finished(*processes: "subprocess.Popen[str]") -> bool:
    """Wait for processes; tell whether all ended well."""
    for process in processes:
        process.communicate(timeout=120)
    return not any(process.returncode for process in processes)


def adder(folder: Path, name: str, count: int, *, url: str = "") -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", ADDER, str(folder), url, name, str(count)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def index(tmp_path: Path) -> Iterator[ChromaFolder]:
    made = embedded(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run ``chroma run`` on a free port of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = Path(sys.executable).with_name("chroma")
    folder = tmp_path_factory.mktemp("server")
    process = subprocess.Popen(
        [str(command), "run", "--path", str(folder / "data"), "--host", "127.0.0.1", "--port", str(port)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "CHROMA_ANONYMIZED_TELEMETRY": "false"},
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            assert process.poll() is None
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=20)


def test_it_follows_the_vectors_and_answers_as_they_do(
    tmp_path: Path, index: ChromaFolder, caplog: pytest.LogCaptureFixture
) -> None:
    found = store(tmp_path, 60)
    query = found.matrix[7]
    assert same(index.search(query, limit=10), found.search(query, limit=10))
    assert index.sync() == Changes(0, 0, rebuilt=False)
    fewer = vectors.save(
        tmp_path, SPACE, {one: (found.digests[row], found.matrix[row]) for one, row in found.rows.items() if row > 9}
    )
    assert same(index.search(query, limit=60), fewer.search(query, limit=60))
    changed = store(tmp_path, 55, seed=1)
    assert index.sync() == Changes(55, 5, rebuilt=False)
    assert same(index.search(query, limit=99), changed.search(query, limit=99))
    assert index.space == SPACE
    assert answered_by_chroma(caplog)


def test_a_scope_is_kept_by_ids_whether_few_or_many(
    tmp_path: Path, index: ChromaFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = store(tmp_path, 80)
    few = ["kernel/x/e-0003", "kernel/x/e-0071", "kernel/none/of-us"]
    for most in (chroma_records.SELECTIVE, 1):
        # At 1, every scope counts as a large one, whose answer is filtered instead.
        monkeypatch.setattr(chroma_records, "SELECTIVE", most)
        for ids in (few, list(found.ids[10:70]), [], ["kernel/none/of-us"]):
            expected = found.search(found.matrix[0], limit=8, ids=ids)
            assert same(index.search(found.matrix[0], limit=8, ids=ids), expected)
    assert index.search(found.matrix[0], limit=0) == []
    assert answered_by_chroma(caplog)
    with pytest.raises(RetrievalError, match="expected a vector"):
        index.search(np.ones(3, dtype=np.float32), limit=1)


def test_an_open_reader_sees_a_new_entry_of_another_process_at_its_next_query(
    tmp_path: Path, index: ChromaFolder, caplog: pytest.LogCaptureFixture
) -> None:
    store(tmp_path, 20)
    assert len(index.search(np.eye(DIM, dtype=np.float32)[0], limit=50)) == 20
    for count in (1, 2):
        assert finished(adder(tmp_path, "new", count))
        found = vectors.load(tmp_path)
        row = found.rows[f"kernel/new/e-{count - 1:04}"]
        assert index.search(found.matrix[row], limit=1)[0][0] == found.ids[row]
    assert answered_by_chroma(caplog)


def test_two_readers_in_one_process_both_see_what_another_process_wrote(tmp_path: Path, index: ChromaFolder) -> None:
    store(tmp_path, 5)
    other = embedded(tmp_path)
    axis = np.eye(DIM, dtype=np.float32)[0]
    assert len(index.search(axis, limit=9)) == len(other.search(axis, limit=9)) == 5
    assert finished(adder(tmp_path, "new", 1))
    assert len(index.search(axis, limit=9)) == len(other.search(axis, limit=9)) == 6
    other.close()


def test_two_writing_processes_lose_nothing(
    tmp_path: Path, index: ChromaFolder, caplog: pytest.LogCaptureFixture
) -> None:
    store(tmp_path, 30)
    with adder(tmp_path, "a", 12) as one, adder(tmp_path, "b", 12) as other:
        while one.poll() is None or other.poll() is None:
            # A reader in between must not disturb them.
            index.search(np.eye(DIM, dtype=np.float32)[1], limit=3)
    assert (one.returncode, other.returncode) == (0, 0)
    found = vectors.load(tmp_path)
    assert len(found.ids) == 54
    caplog.clear()
    assert finds_everything(index, found)
    assert answered_by_chroma(caplog)


def test_threads_of_one_process_may_ask_at_once(tmp_path: Path, index: ChromaFolder) -> None:
    found = store(tmp_path, 40)
    wrong: list[int] = []

    def ask(row: int) -> None:
        if index.search(found.matrix[row], limit=1)[0][0] != found.ids[row]:
            wrong.append(row)

    threads = [threading.Thread(target=ask, args=(row,)) for row in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_writer_killed_at_any_moment_costs_nothing(tmp_path: Path, index: ChromaFolder) -> None:
    store(tmp_path, 30)
    for pause in (0.0, 0.02, 0.05):
        with adder(tmp_path, f"k{int(pause * 1000)}", 1000) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(pause)
            process.send_signal(signal.SIGKILL)
        found = vectors.load(tmp_path)
        assert finds_everything(index, found)


def test_another_model_gets_an_index_of_its_own(tmp_path: Path, index: ChromaFolder) -> None:
    store(tmp_path, 10)
    index.sync()
    found = store(tmp_path, 12, seed=3, space=OTHER)
    assert index.sync() == Changes(12, 0, rebuilt=True)
    assert same(index.search(found.matrix[0], limit=20), found.search(found.matrix[0], limit=20))
    assert chroma_records.name_of(SPACE) != chroma_records.name_of(OTHER)


def test_a_busy_index_does_not_hold_up_an_answer(
    tmp_path: Path, index: ChromaFolder, caplog: pytest.LogCaptureFixture
) -> None:
    found = store(tmp_path, 10)
    index.sync()
    with locked(tmp_path / "chroma.lock"):
        began = time.monotonic()
        assert same(index.search(found.matrix[0], limit=3), found.search(found.matrix[0], limit=3))
        assert time.monotonic() - began < 10
    assert "the vectors answer instead" in caplog.text


def test_more_than_one_batch_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chroma_records.BATCH <= 5_461
    monkeypatch.setattr(chroma_records, "BATCH", 7)
    found = store(tmp_path, 30)
    made = embedded(tmp_path)
    reports: list[tuple[int, int]] = []
    made.sync(progress=lambda done, total: reports.append((done, total)))
    assert reports == [(7, 30), (14, 30), (21, 30), (28, 30), (30, 30)]
    assert finds_everything(made, found)
    vectors.save(tmp_path, SPACE, {found.ids[0]: (found.digests[0], found.matrix[0])})
    assert made.sync() == Changes(0, 29, rebuilt=False)
    made.close()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    store(tmp_path, 3)
    with pytest.raises(StoreError):
        ChromaFolder(
            tmp_path / "missing", partial(vectors.load, tmp_path), lock=partial(locked, tmp_path / "missing" / "lock")
        ).sync()


def test_a_server_answers_as_the_vectors_do(tmp_path: Path, server: str, caplog: pytest.LogCaptureFixture) -> None:
    found = store(tmp_path, 40)
    index = ChromaServer(server, partial(vectors.load, tmp_path))
    assert same(index.search(found.matrix[2], limit=9), found.search(found.matrix[2], limit=9))
    ids = list(found.ids[5:9])
    assert same(index.search(found.matrix[2], limit=9, ids=ids), found.search(found.matrix[2], limit=9, ids=ids))
    assert index.sync() == Changes(0, 0, rebuilt=False)
    assert index.sync(rebuild=True) == Changes(40, 0, rebuilt=True)
    changed = store(tmp_path, 35, seed=9)
    assert same(index.search(found.matrix[2], limit=40), changed.search(found.matrix[2], limit=40))
    assert answered_by_chroma(caplog)
    index.close()


def test_two_processes_writing_to_a_server_lose_nothing_and_a_third_node_sees_its_own_entries_only(
    tmp_path: Path, server: str, caplog: pytest.LogCaptureFixture
) -> None:
    store(tmp_path, 10)
    assert finished(adder(tmp_path, "a", 8, url=server), adder(tmp_path, "b", 8, url=server))
    found = vectors.load(tmp_path)
    index = ChromaServer(server, partial(vectors.load, tmp_path))
    assert index.sync() == Changes(0, 0, rebuilt=False)
    assert len(found.ids) == 26
    assert finds_everything(index, found)
    (tmp_path / "third").mkdir()
    own = store(tmp_path / "third", 4)
    third = ChromaServer(server, partial(vectors.load, tmp_path / "third"))
    assert same(third.search(found.matrix[0], limit=50), own.search(found.matrix[0], limit=50))
    assert answered_by_chroma(caplog)
    third.close()
    index.close()


def test_a_server_that_is_gone_does_not_stop_a_search(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = store(tmp_path, 6)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        index = ChromaServer(f"http://127.0.0.1:{taken.getsockname()[1]}", partial(vectors.load, tmp_path))
        with caplog.at_level(logging.WARNING):
            assert same(index.search(found.matrix[2], limit=9), found.search(found.matrix[2], limit=9))
        assert "does not answer as expected" in caplog.text
        with pytest.raises(StoreError, match=r"127\.0\.0\.1") as caught:
            index.sync()
        assert caught.value.hint == "start it with: chroma run"


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://host:1", "http://", "http://host:port", "http://h/path"])
def test_an_address_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError, match="KB_CHROMA_URL"):
        ChromaServer(url, partial(vectors.load, tmp_path))


def test_vectors_come_from_the_caller(tmp_path: Path, index: ChromaFolder) -> None:
    index.search(store(tmp_path, 2).matrix[0], limit=1)
    # Chroma's own embedder would fetch a model at its first use; a collection without one cannot.
    assert index._collection is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with pytest.raises(ValueError, match="embedding function"):
            index._collection.query(query_texts=["a text"])
