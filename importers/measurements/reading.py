"""Read every measurement below a folder, whatever its format."""

from collections import Counter
from pathlib import Path

from kb.errors import SourceUnavailableError
from kb.importers.measurements import aiconfigurator, kernelbench
from kb.importers.measurements.tables import SUFFIXES, rows
from kb.prediction import Sample
from kb.values import Frozen


class Read(Frozen):
    """What was found."""

    samples: tuple[Sample, ...]
    problems: tuple[kernelbench.ProblemTime, ...]
    """Times without shapes, of which nothing can be predicted."""
    skipped: tuple[tuple[str, int], ...]
    """Why rows were left out, and how many."""
    files: int


def read(path: Path) -> Read:
    """Read a file, or all tables and timing files below a folder, in the order of their names.

    Args:
        path: ``.csv``, ``.parquet``, ``baseline_time_*.json``, or a folder.

    Raises:
        SourceUnavailableError: There is nothing of the kind, or a file cannot be read.
    """
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if _wanted(one))
    if not files:
        raise SourceUnavailableError(
            f"{path} holds no measurements", hint="a folder with .csv, .parquet or baseline_time_*.json files"
        )
    skipped: Counter[str] = Counter()

    def skip(reason: str) -> None:
        skipped[reason] += 1

    samples: list[Sample] = []
    problems: list[kernelbench.ProblemTime] = []
    for file in files:
        if file.suffix == ".json":
            problems += kernelbench.times(file, skip=skip)
        elif _columns(file) is None:
            skip(f"{file.name}: not a table of measured kernels")
        else:
            samples += aiconfigurator.samples(file, skip=skip)
    return Read(tuple(samples), tuple(problems), tuple(sorted(skipped.items())), len(files))


def _wanted(file: Path) -> bool:
    if not file.is_file():
        return False
    return file.suffix in SUFFIXES or (file.suffix == ".json" and file.name.startswith("baseline_time_"))


def _columns(file: Path) -> frozenset[str] | None:
    """Return the columns of a table that can be read here; None of any other."""
    first = next(iter(rows(file)), None)
    if first is None or not aiconfigurator.recognises(frozenset(first)):
        return None
    return frozenset(first)
