"""The reference worker of a model: a trusted process that holds the original weights and writes what they answer.

It answers in float32, and on request as the weights are stored (the original's own rounding noise) or with its
matrices rounded to a declared format (the budget). It never sees the candidate.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kb.validators.model.directory import Model
from kb.validators.model.precision import rounded


class Original:
    """The original model, in float32 and as stored."""

    def __init__(self, folder: str) -> None:
        self.stored = Model(folder)
        self.exact = Model(folder, torch.float32)
        self.vocabulary = int(self.exact.model.get_output_embeddings().weight.shape[0])

    def logits(self, tokens: list[int], how: str) -> torch.Tensor:
        """Return float32 [length, vocabulary]; ``how`` is ``exact``, ``stored`` or a format of ``PRECISIONS``."""
        given = torch.tensor(tokens)
        if how == "stored":
            return self.stored.logits(given)
        with rounded(self.exact.model, "bfloat16" if how == "exact" else how):
            return self.exact.logits(given)

    def draw(self, tokens: list[int], uniforms: list[float]) -> list[int]:
        """Draw new tokens from uniform numbers, as a candidate does."""
        drawn: list[int] = self.exact.generate(
            torch.tensor(tokens), torch.tensor(uniforms, dtype=torch.float64)
        ).tolist()
        return drawn

    def texts(self, seed: int, lengths: list[int]) -> list[list[int]]:
        """Draw texts that nobody has seen: a random first token, then the model's own samples; every third is noise."""
        dice = torch.Generator().manual_seed(seed)
        made: list[list[int]] = []
        for number, length in enumerate(lengths):
            noise = torch.randint(self.vocabulary, (length,), generator=dice).tolist()
            uniforms = torch.rand(length - 1, dtype=torch.float64, generator=dice).tolist()
            made.append(noise if number % 3 == 2 else noise[:1] + self.draw(noise[:1], uniforms))
        return made


def main() -> None:
    """Load, then answer one JSON line after another until standard input ends."""
    torch.set_num_threads(2)
    original = Original(sys.argv[1])
    folder = Path(sys.argv[2])
    print(json.dumps({"vocabulary": original.vocabulary}), flush=True)  # noqa: T201 - the judge waits for it
    for line in sys.stdin:
        asked = json.loads(line)
        reply: dict[str, Any] = {}
        if asked["op"] == "texts":
            reply["texts"] = original.texts(asked["seed"], asked["lengths"])
        elif asked["op"] == "draw":
            reply["tokens"] = original.draw(asked["tokens"], asked["uniforms"])
        else:
            for number, tokens in enumerate(asked["texts"]):
                np.save(folder / f"{asked['name']}-{number}.npy", original.logits(tokens, asked["how"]).numpy())
        print(json.dumps(reply), flush=True)  # noqa: T201 - likewise


if __name__ == "__main__":
    main()
