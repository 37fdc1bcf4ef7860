"""Makes ``graded.jsonl`` from the queries and the two graders' grades, and says how far the graders agree.

python tests/data/graded.py
"""

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kb.retrieval.metrics import USEFUL, kappa

FOLDER = Path(__file__).parent
NOT_A_KIND = "negative result"
"""Noted as a kind by the author of two queries: an outcome is what it is, so it filters nothing."""
LATER = {
    "kernel/fused_add_rmsnorm/cuda-row-in-registers": "kernel/fused_add_rmsnorm/one-pass-residual",
    "kernel/rmsnorm_quantize_fp8/cuda-one-barrier": "kernel/rmsnorm_quantize_fp8/per-token-scale",
    "kernel/topk_router/cuda-redux-per-choice": "kernel/topk_router/one-warp-per-row",
}
"""Entries that came after the grading → the one that does the same in another language, whose grades they have.

They are added after merging, so that no agreement of the graders is counted twice.
"""


@dataclass(frozen=True)
class Agreement:
    """How far two graders agree."""

    kappa: float
    """Quadratic-weighted Cohen's kappa over all queries with all entries that either graded for any of them."""
    strict_kappa: float
    """The same over the pairs of query and entry that either gave a grade above 0: agreeing on a 0 earns nothing."""
    overlap: float
    """Pairs that both found useful (grade 2 or 3), over those that either did."""
    pairs: int


def read(name: str) -> list[dict[str, Any]]:
    """Return the lines of one file."""
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def half_of(query: str) -> str:
    """Return the half that a query belongs to, by the last bit of its text's sha256."""
    return "test" if hashlib.sha256(query.encode()).digest()[-1] % 2 else "tune"


def merged(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    """Return the mean of two graders' grades, halves rounded up."""
    every = sorted({*first, *second})
    means = {one: (first.get(one, 0) + second.get(one, 0) + 1) // 2 for one in every}
    return {one: grade for one, grade in means.items() if grade > 0}


def graded() -> list[dict[str, Any]]:
    """Return the lines of ``graded.jsonl``."""
    found = []
    for query, first, second in zip(read("queries.jsonl"), read("grades_1.jsonl"), read("grades_2.jsonl"), strict=True):
        if not query["query"] == first["query"] == second["query"]:
            raise ValueError(f"the files do not belong together at {query['query']!r}")
        scope = {name: value for name, value in (query.get("scope") or {}).items() if value != NOT_A_KIND}
        relevant = merged(first["relevant"], second["relevant"])
        relevant |= {new: relevant[same] for new, same in LATER.items() if same in relevant}
        if max(relevant.values(), default=0) < USEFUL:
            continue
        line = {"query": query["query"], "relevant": dict(sorted(relevant.items(), key=lambda one: (-one[1], one[0])))}
        line |= {"scope": scope} if scope else {}
        found.append(line | {"origin": query["origin"], "half": half_of(query["query"])})
    return found


def agreement(first: Iterable[Mapping[str, Any]], second: Iterable[Mapping[str, Any]]) -> Agreement:
    """Compare the grades of two graders, in the same order of queries."""
    rows = [(one["relevant"], other["relevant"]) for one, other in zip(first, second, strict=True)]
    entries = sorted({entry for row in rows for grades in row for entry in grades})
    every = [(left.get(entry, 0), right.get(entry, 0)) for left, right in rows for entry in entries]
    pairs = [pair for pair in every if pair != (0, 0)]
    both = sum(min(pair) >= USEFUL for pair in pairs)
    either = sum(max(pair) >= USEFUL for pair in pairs)
    return Agreement(kappa(every), kappa(pairs), both / either, len(pairs))


def write(lines: Sequence[Mapping[str, Any]]) -> None:
    """Write ``graded.jsonl``."""
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (FOLDER / "graded.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    made = graded()
    write(made)
    found = agreement(read("grades_1.jsonl"), read("grades_2.jsonl"))
    halves = {half: sum(line["half"] == half for line in made) for half in ("tune", "test")}
    sys.stdout.write(f"{len(made)} queries ({halves}); kappa {found.kappa:.3f}, ")
    sys.stdout.write(
        f"without agreed zeros {found.strict_kappa:.3f}, overlap {found.overlap:.3f} over {found.pairs} pairs\n"
    )
