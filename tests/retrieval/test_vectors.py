"""The vectors on disk are exact, belong to one model, and are whole whatever happens to a writer."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kb.errors import IndexStaleError, RetrievalError, StoreError
from kb.retrieval import vectors
from kb.retrieval.embed import Space

REPOSITORY = Path(__file__).parent.parent.parent
SPACE = Space("test", 4, (("model", "00"),), "by hand")
OTHER = Space("other", 4, (("model", "01"),), "by hand")

Rows = dict[str, tuple[str, npt.NDArray[np.float32]]]

WRITER = """
import sys
from pathlib import Path
import numpy as np
from kb.retrieval import vectors
from kb.retrieval.embed import Space
space = Space("test", 4, (("model", "00"),), "by hand")
folder = Path(sys.argv[1])
for turn in range(int(sys.argv[2])):
    axis = np.eye(4, dtype=np.float32)[turn % 4]
    vectors.save(folder, space, {f"id-{n}": (str(turn % 4), axis) for n in range(1 + turn % 4)})
    print(turn, flush=True)
"""


def unit(*values: float) -> npt.NDArray[np.float32]:
    made = np.array(values, dtype=np.float32)
    return made / np.float32(np.linalg.norm(made))


def rows(count: int, seed: int = 0) -> Rows:
    random = np.random.default_rng(seed)
    # Small whole numbers make ties, which is where orders go wrong.
    found = random.integers(-2, 3, size=(count, 4))
    return {
        f"kernel/x/e-{n:03}": (f"d{n}", unit(*(found[n] if found[n].any() else [1, 0, 0, 0]))) for n in range(count)
    }


def writer(folder: Path, turns: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(turns)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_what_was_saved_is_read_back_through_the_map(tmp_path: Path) -> None:
    made = rows(9)
    vectors.save(tmp_path, SPACE, made, tree="state")
    found = vectors.load_for(tmp_path, SPACE)
    assert found.ids == tuple(sorted(made))
    assert (found.space, found.tree, found.digests[3]) == (SPACE, "state", "d3")
    assert isinstance(found.matrix, np.memmap)
    for one, (_, vector) in made.items():
        assert np.array_equal(found.matrix[found.rows[one]], vector)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(count=st.integers(0, 40), seed=st.integers(0, 5), limit=st.integers(0, 45), part=st.integers(1, 5))
def test_the_nearest_are_exact_and_ties_come_by_id(
    tmp_path: Path, count: int, seed: int, limit: int, part: int
) -> None:
    made = rows(count, seed)
    found = vectors.save(tmp_path, SPACE, made)
    query = unit(1, 2, 0, 1)
    for ids in (None, [one for n, one in enumerate(sorted(made)) if n % part == 0] + ["unknown/x/y"]):
        answer = found.search(query, limit=limit, ids=ids)
        scores = {one: float(made[one][1] @ query) for one in (made if ids is None else ids) if one in made}
        assert len(answer) == min(limit, len(scores))
        best = sorted(scores.values(), reverse=True)[: len(answer)]
        assert [score for _, score in answer] == pytest.approx(best, abs=1e-6)
        assert answer == sorted(answer, key=lambda pair: (-pair[1], pair[0]))
        assert all(score == pytest.approx(scores[one], abs=1e-6) for one, score in answer)


def test_no_entries_are_no_hits(tmp_path: Path) -> None:
    found = vectors.save(tmp_path, SPACE, {})
    assert vectors.load(tmp_path).search(unit(1, 0, 0, 0), limit=5) == []
    assert found.search(unit(1, 0, 0, 0), limit=5, ids=["kernel/x/y"]) == []


def test_vectors_of_another_model_are_refused(tmp_path: Path) -> None:
    vectors.save(tmp_path, SPACE, rows(3))
    with pytest.raises(RetrievalError, match=r"made by test .* the query's by other"):
        vectors.load_for(tmp_path, OTHER)
    with pytest.raises(RetrievalError, match="expected a vector of 4 numbers"):
        vectors.load(tmp_path).search(np.ones(5, dtype=np.float32), limit=1)


@pytest.mark.parametrize("bad", [[1, 1, 0, 0], [0, 0, 0, 0], [np.nan, 0, 0, 0], [np.inf, 0, 0, 0], [1, 0, 0]])
def test_a_vector_that_is_not_of_length_one_is_not_stored(tmp_path: Path, bad: list[float]) -> None:
    with pytest.raises(RetrievalError, match="kernel/x/y: expected a vector of length 1"):
        vectors.save(tmp_path, SPACE, {"kernel/x/y": ("d", np.array(bad, dtype=np.float32))})
    with pytest.raises(IndexStaleError):
        vectors.load(tmp_path)


def _header(folder: Path, **changes: object) -> None:
    file = folder / vectors.FILE
    header = json.loads(file.read_text(encoding="utf-8"))
    header.update(changes)
    file.write_text(json.dumps(header), encoding="utf-8")


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": 2},
        {"count": 2},
        {"count": "many"},
        {"ids": ["b", "a", "c"]},
        {"ids": ["a", "a", "b"]},
        {"ids": None},
        {"data": "../../etc/passwd"},
        {"data": "/etc/passwd"},
        {"data": "missing.f32"},
        {"data": ""},
        {"space": {}},
        {"space": {**SPACE.to_json(), "dim": 5}},
        {"space": []},
    ],
)
def test_a_header_that_does_not_fit_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    vectors.save(tmp_path, SPACE, rows(3))
    _header(tmp_path, **changes)
    with pytest.raises(IndexStaleError) as caught:
        vectors.load(tmp_path)
    assert caught.value.hint == "kb index --rebuild"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'"text"'])
def test_a_header_that_is_no_header_is_refused(tmp_path: Path, body: bytes) -> None:
    vectors.save(tmp_path, SPACE, rows(3))
    (tmp_path / vectors.FILE).write_bytes(body)
    with pytest.raises(IndexStaleError):
        vectors.load(tmp_path)


@pytest.mark.parametrize("size", [0, 7, 47, 49])
def test_a_data_file_of_another_size_is_refused(tmp_path: Path, size: int) -> None:
    data = tmp_path / vectors.save(tmp_path, SPACE, rows(3)).name
    os.truncate(data, size)
    with pytest.raises(IndexStaleError, match="expected 48 bytes"):
        vectors.load(tmp_path)
    assert len(vectors.save(tmp_path, SPACE, rows(3)).ids) == 3


def test_a_reader_keeps_what_it_opened_and_old_files_go(tmp_path: Path) -> None:
    old = vectors.save(tmp_path, SPACE, rows(5, seed=1))
    before = old.search(unit(1, 0, 0, 0), limit=5)
    stamp = vectors.stamp(tmp_path)
    (tmp_path / "vectors.jsonabc.part").write_bytes(b"left behind")
    vectors.save(tmp_path, SPACE, rows(7, seed=2))
    assert vectors.stamp(tmp_path) != stamp
    assert old.search(unit(1, 0, 0, 0), limit=5) == before
    assert len(list(tmp_path.iterdir())) == 2
    assert len(vectors.load(tmp_path).ids) == 7


def test_a_folder_that_cannot_be_written_is_an_error_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        vectors.save(tmp_path / "missing", SPACE, rows(1))
    assert vectors.stamp(tmp_path / "missing") is None


def test_a_reader_beside_a_writer_sees_whole_states_only(tmp_path: Path) -> None:
    vectors.save(tmp_path, SPACE, {"id-0": ("0", unit(1, 0, 0, 0))})
    with writer(tmp_path, 120) as process:
        seen = set()
        while process.poll() is None:
            found = vectors.load(tmp_path)
            state = set(found.digests)
            assert len(state) == 1
            turn = int(state.pop())
            assert len(found.ids) == turn + 1
            assert np.array_equal(found.matrix, np.eye(4, dtype=np.float32)[[turn] * (turn + 1)])
            seen.add(turn)
    assert process.returncode == 0
    assert len(seen) > 1


def test_a_killed_writer_leaves_whole_vectors(tmp_path: Path) -> None:
    for pause in (0.0, 0.013, 0.031):
        with writer(tmp_path, 100_000) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(pause)
            process.send_signal(signal.SIGKILL)
        found = vectors.load(tmp_path)
        assert len(set(found.digests)) == 1
        assert len(found.ids) == int(found.digests[0]) + 1
    assert len(vectors.save(tmp_path, SPACE, rows(2)).ids) == 2
    assert len(list(tmp_path.iterdir())) == 2


def test_the_semantic_modules_load_no_heavy_package_until_they_are_used() -> None:
    code = (
        "import sys, kb.retrieval.hybrid, kb.retrieval.vectors, kb.retrieval.models, kb.retrieval.chroma, "
        "kb.service.embedding\n"
        "heavy = ('numpy', 'onnxruntime', 'tokenizers', 'chromadb', 'torch', 'sentence_transformers', 'sqlmodel')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "[]"
