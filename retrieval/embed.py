"""What an embedder is, which vectors may be compared, and what text of an entry is embedded. Standard library only."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kb.errors import RetrievalError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Matrix = npt.NDArray[np.float32]

TEXT_RECIPE = 1
"""Raise it with every change of :func:`text_of`: vectors of another recipe are made anew."""

_MARKS = re.compile(r"[*`#|>]+")
_BLANKS = re.compile(r"\s+")


@dataclass(frozen=True)
class Space:
    """Which vectors may be compared: those of the same model files, used the same way."""

    name: str
    """As in the settings: ``onnx-minilm``."""
    dim: int
    files: tuple[tuple[str, str], ...]
    """Name and sha256 of every file of the model, sorted."""
    recipe: str
    """How texts become vectors: pooling and the longest text, in tokens."""

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits that differ as soon as anything differs that changes a vector."""
        parts = [self.dim, [list(pair) for pair in self.files], self.recipe, TEXT_RECIPE]
        return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode("ascii")).hexdigest()[:16]

    def to_json(self) -> dict[str, object]:
        """Return the space as plain JSON values."""
        return {"name": self.name, "dim": self.dim, "files": dict(self.files), "recipe": self.recipe, "key": self.key}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Space":
        """Read what :meth:`to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: It is something else.
        """
        files = tuple(sorted((str(name), str(digest)) for name, digest in values["files"].items()))
        space = cls(str(values["name"]), int(values["dim"]), files, str(values["recipe"]))
        if space.key != values["key"]:
            raise ValueError("the key does not belong to the model")
        return space


class Embedder(Protocol):
    """Turns texts into vectors of length 1."""

    @property
    def space(self) -> Space:
        """Which vectors its own may be compared with."""

    def embed(self, texts: Sequence[str]) -> "Matrix":
        """Embed documents.

        Args:
            texts: Any number of texts; each vector depends on its own text alone.

        Returns:
            float32 [len(texts), dim], every row of length 1.
        """

    def embed_query(self, text: str) -> "Matrix":
        """Embed a query.

        Args:
            text: What somebody looks for.

        Returns:
            float32 [dim], of length 1.
        """


class DenseIndex(Protocol):
    """Finds the entries whose vectors are nearest to a vector."""

    @property
    def space(self) -> Space:
        """Of which model its vectors are."""

    def search(self, vector: "Matrix", *, limit: int, ids: Sequence[str] | None = None) -> list[tuple[str, float]]:
        """Return the nearest entries.

        Args:
            vector: float32 [dim], of length 1.
            limit: Most entries to return.
            ids: Look among these only; None for all. Ids that have no vector are passed over.

        Returns:
            Id and cosine, best first; equal ones by id.
        """


def require_same(space: Space, other: Space) -> None:
    """Refuse to compare vectors of two models.

    Raises:
        RetrievalError: The models differ.
    """
    if space.key != other.key:
        raise RetrievalError(
            f"these vectors were made by {other.name} ({other.key}), the query's by {space.name} ({space.key})",
            hint="kb index",
        )


def text_of(*, title: str, summary: str, kind: str, operators: Sequence[str], tags: Sequence[str], readme: str) -> str:
    """Return the text of an entry that is embedded: what it is called, what it is about, then its prose.

    A model reads a few hundred tokens and drops the rest, so that what tells entries apart stands first.
    """
    topics = ", ".join(dict.fromkeys(word.replace("_", " ").replace("-", " ") for word in (*operators, *tags)))
    body = readme.partition("\n")[2] if readme.startswith("# ") else readme
    parts = [f"{title}.", summary, f"{kind}: {topics}.", body]
    return _BLANKS.sub(" ", _MARKS.sub(" ", " ".join(parts))).strip()


def digest_of(text: str) -> str:
    """Return the digest by which a text is known to be embedded already, 32 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
