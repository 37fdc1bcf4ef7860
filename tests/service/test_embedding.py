"""Vectors follow the entries: only what changed is embedded, by one process at a time, and search sees it at once."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kb import catalogue, config, launch
from kb.config import Root
from kb.errors import ConfigError, EmbedderUnavailableError
from kb.models.hit import Answer
from kb.retrieval import filters, minilm, model_files, vectors
from kb.retrieval.chroma import ChromaFolder, ChromaServer
from kb.retrieval.fuse import DEFAULT_WEIGHT
from kb.retrieval.minilm import OnnxMiniLM
from kb.retrieval.models import open_embedder
from kb.service import embedding
from kb.service.indexing import ensure_index

REPOSITORY = Path(__file__).parent.parent.parent
WriteEntry = Callable[..., Path]

ENSURE = """
import sys
from kb.config import Root
from pathlib import Path
from kb.service.embedding import ensure_vectors
done = []
ensure_vectors(Root(Path(sys.argv[1])), progress=lambda n, total: done.append(n))
print(max(done, default=0))
"""


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KB_CHROMA_URL", raising=False)


@pytest.fixture(scope="module")
def embedder() -> OnnxMiniLM:
    return OnnxMiniLM(resident=True)


@pytest.fixture
def filled(root: Root, write_entry: WriteEntry) -> Root:
    write_entry(root.entries, "kernel/rmsnorm/row-per-cta")
    write_entry(root.entries, "kernel/softmax/online", readme="# Softmax\n\nOne pass with a running maximum.\n")
    write_entry(root.entries, "kernel/nms/bitmask", readme="# NMS\n\nOverlapping boxes are dropped by bit masks.\n")
    return root


@contextmanager
def reader(root: Root) -> Iterator[sqlite3.Connection]:
    with closing(catalogue.open_reader(ensure_index(root))) as connection:
        yield connection


def embedded(root: Root, embedder: OnnxMiniLM, *, rebuild: bool = False) -> tuple[int, vectors.Vectors]:
    done = [0]
    found = embedding.ensure_vectors(
        root, embedder=embedder, rebuild=rebuild, progress=lambda count, total: done.append(total)
    )
    return done[-1], found


def resident(root: Root, query: str, search: embedding.ResidentSearch) -> Answer:
    with reader(root) as connection:
        return search.search(connection, query, scope=filters.make(connection), limit=5)


def settings(text: str) -> None:
    folder = config.config_folder()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(text, encoding="utf-8")


def test_only_what_changed_is_embedded(filled: Root, write_entry: WriteEntry, embedder: OnnxMiniLM) -> None:
    assert embedded(filled, embedder)[0] == 3
    count, before = embedded(filled, embedder)
    assert count == 0
    write_entry(filled.entries, "kernel/softmax/online", kernel="def run(x):\n    return x + 0\n",
                readme="# Softmax\n\nOne pass with a running maximum.\n")  # fmt: skip
    count, same = embedded(filled, embedder)
    assert (count, same.name) == (0, before.name)  # code is not embedded
    write_entry(filled.entries, "kernel/softmax/online", readme="# Softmax\n\nTwo passes now.\n")
    count, after = embedded(filled, embedder)
    assert count == 1
    assert after.name != before.name
    for one in ("kernel/nms/bitmask", "kernel/rmsnorm/row-per-cta"):
        assert (after.matrix[after.rows[one]] == before.matrix[before.rows[one]]).all()
    shutil.rmtree(filled.entries / "kernel" / "nms")
    count, fewer = embedded(filled, embedder)
    assert (count, len(fewer.ids)) == (0, 2)
    assert embedded(filled, embedder, rebuild=True)[0] == 2


def test_another_embedder_embeds_everything_again(filled: Root, embedder: OnnxMiniLM, tmp_path: Path) -> None:
    embedded(filled, embedder)
    folder = tmp_path / "own"
    folder.mkdir()
    for file in minilm.MINILM:
        shutil.copy(model_files.find(file, hint=""), folder / file.name)
    with (folder / "tokenizer.json").open("a", encoding="utf-8") as stream:
        stream.write("\n")
    settings(f'embedder = "onnx-minilm:{folder}"\n')
    other = open_embedder(embedding.embedder_setting())
    done: list[tuple[int, int]] = []
    found = embedding.ensure_vectors(filled, progress=lambda count, total: done.append((count, total)))
    assert done == [(0, 3), (3, 3)]
    assert found.space.key == other.space.key != embedder.space.key


@pytest.mark.parametrize("damage", [b"", b"{}", None])
def test_damaged_vectors_are_made_anew(filled: Root, embedder: OnnxMiniLM, damage: bytes | None) -> None:
    _, found = embedded(filled, embedder)
    folder = filled.path / ".kb"
    if damage is None:
        (folder / found.name).unlink()
    else:
        (folder / vectors.FILE).write_bytes(damage)
    count, again = embedded(filled, embedder)
    assert (count, again.name) == (3, found.name)


def test_processes_that_start_together_embed_once(filled: Root) -> None:
    ensure_index(filled)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ENSURE, str(filled.path)],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    counts = sorted(int(process.communicate(timeout=120)[0]) for process in processes)
    assert counts == [0, 0, 3]


def test_a_command_searches_by_meaning_without_chroma_torch_or_the_slow_command_line(filled: Root) -> None:
    code = (
        "import sys; from kb.launch import main\n"
        "code = main(['search', '--semantic', 'removing duplicate detections', '--root', sys.argv[1]])\n"
        "heavy = ('chromadb', 'torch', 'sentence_transformers', 'sqlmodel', 'sqlalchemy', 'typer', 'pydantic', 'git')\n"
        "print('heavy', [name for name in heavy if name in sys.modules]); sys.exit(code)"
    )
    ensure_index(filled)
    done = subprocess.run(
        [sys.executable, "-c", code, str(filled.path)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "kernel/nms/bitmask" in done.stdout
    assert done.stdout.splitlines()[-1] == "heavy []"


def test_a_command_says_that_it_embeds_before_it_does_but_not_for_a_few(
    filled: Root, write_entry: WriteEntry, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(6):
        write_entry(filled.entries, f"kernel/rmsnorm/way-{number}")
    words = ["search", "--semantic", "norm", "--root", str(filled.path)]
    assert launch.main(words) == 0
    assert "embedding 9 entries for search by meaning" in capsys.readouterr().err
    write_entry(filled.entries, "kernel/rmsnorm/one-more")
    assert launch.main(words) == 0
    shown = capsys.readouterr()
    assert "embedding" not in shown.err
    assert "kernel/rmsnorm/one-more" in shown.out


def test_a_resident_search_uses_chroma_and_sees_a_new_entry_at_its_next_query(
    filled: Root, write_entry: WriteEntry, caplog: pytest.LogCaptureFixture
) -> None:
    settings("dense_weight = 0.2\n")
    search = embedding.ResidentSearch(filled)
    with closing(search):
        assert isinstance(search.index, ChromaFolder)
        assert resident(filled, "removing duplicate detections", search).hits[0].id == "kernel/nms/bitmask"
        write_entry(
            filled.entries, "technique/launch/graph", kernel="",
            facts='schema = 1\nversion = 1\ntitle = "Capture the step once"\noutcome = "works"\n'
            'summary = "Replaying a recorded sequence of launches frees the host."\nlicense = "Apache-2.0"\n'
            '[source]\norigin = "written here"\n',
            readme="# Capture\n\nThe processor no longer waits for the CPU to enqueue each operation.\n",
        )  # fmt: skip
        (filled.entries / "technique/launch/graph/kernel.py").unlink()
        found = resident(filled, "CPU enqueue cost dominates", search)
        assert found.hits[0].id == "technique/launch/graph"
        assert (filled.path / ".kb" / "chroma" / "chroma.sqlite3").is_file()
        assert not [record for record in caplog.records if record.name == "kb.retrieval.chroma"]
        # A command reads the same vectors, and both give the same order.
        with reader(filled) as connection:
            one_shot = embedding.search_semantic(
                filled, connection, "CPU enqueue cost dominates", scope=filters.make(connection), limit=5
            )
        assert [hit.id for hit in one_shot.hits] == [hit.id for hit in found.hits]


def test_the_chroma_index_can_be_written_ahead_and_after_its_loss(filled: Root, embedder: OnnxMiniLM) -> None:
    embedded(filled, embedder)
    written: list[tuple[int, int]] = []
    for turn in (1, 2):
        embedding.sync_chroma(filled, progress=lambda count, total: written.append((count, total)))
        assert written == [(3, 3)] * turn
        shutil.rmtree(filled.path / ".kb" / "chroma")


def test_a_server_is_used_where_its_address_is_set(filled: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KB_CHROMA_URL", "http://127.0.0.1:9")
    search = embedding.ResidentSearch(filled)
    assert isinstance(search.index, ChromaServer)
    # Nobody listens there: the vectors answer.
    assert resident(filled, "removing duplicate detections", search).hits[0].id == "kernel/nms/bitmask"
    search.close()
    monkeypatch.setenv("KB_CHROMA_URL", "nonsense")
    with pytest.raises(ConfigError, match="KB_CHROMA_URL"):
        embedding.ResidentSearch(filled)


def test_packaged_entries_have_their_vectors_in_the_cache(filled: Root, embedder: OnnxMiniLM) -> None:
    packaged = Root(filled.path, packaged=True)
    assert embedded(packaged, embedder)[0] == 3
    assert not (filled.path / ".kb").exists()
    assert list(config.cache_folder().rglob(vectors.FILE))


def test_settings_are_checked(filled: Root) -> None:
    assert embedding.dense_weight() == DEFAULT_WEIGHT
    settings("dense_weight = 0.35\n")
    assert embedding.dense_weight() == 0.35
    settings("dense_weight = 0\n")
    assert embedding.dense_weight() == DEFAULT_WEIGHT
    for bad in ("2", "-0.1", "true", '"much"', "nan"):
        settings(f"dense_weight = {bad}\n")
        with pytest.raises(ConfigError, match="dense_weight"):
            embedding.dense_weight()
    settings("embedder = 7\n")
    with pytest.raises(ConfigError, match="embedder"):
        embedding.ensure_vectors(filled)
    settings('embedder = "sentence-transformers:./nowhere"\n')
    with pytest.raises(EmbedderUnavailableError, match="no model at"):
        embedding.ensure_vectors(filled)


def test_an_empty_knowledge_base_has_no_vectors_and_no_hits(root: Root, embedder: OnnxMiniLM) -> None:
    assert embedded(root, embedder)[1].ids == ()
    with closing(embedding.ResidentSearch(root)) as search:
        answer = resident(root, "anything", search)
    assert answer.hits == ()
    assert answer.empty_because == "the knowledge base has no entries yet: kb add DIR"
