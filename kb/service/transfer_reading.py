"""What ``kb eval transfer`` reads and writes."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from kb.errors import ConfigError, StoreError
from kb.importers.measurements.reading import read
from kb.prediction.constants import written
from kb.prediction.values import Sample
from kb.service.transfer_fitting import fit
from kb.service.transfer_study import Settings


def measurements(data: Sequence[Path]) -> tuple[tuple[Sample, ...], tuple[str, ...]]:
    """Read all measurements of some folders and files.

    Args:
        data: What to read.

    Returns:
        The samples, and what there is to say about what was left out.

    Raises:
        SourceUnavailableError: A source cannot be read, or holds nothing.
    """
    samples: list[Sample] = []
    notes: list[str] = []
    for path in data:
        found = read(path)
        samples += found.samples
        notes.append(f"{path.name}: {len(found.samples):,} measurements in {found.files} files")
        notes += [f"  {count:,} left out: {reason}" for reason, count in found.skipped]
        if found.problems:
            notes.append(f"  {len(found.problems):,} times without shapes: not predictable, no work is known for them")
    return tuple(samples), tuple(notes)


def calibration(asked: str | None) -> Settings:
    """Read what ``--calibrate`` says: a number of measurements a series, or a file or folder of them.

    Raises:
        ConfigError: It is neither.
    """
    if asked is None:
        return Settings()
    if asked.isdecimal():
        if not 1 <= int(asked) <= 1000:
            raise ConfigError(f"--calibrate {asked} is not between 1 and 1000")
        return Settings(calibrate=int(asked))
    path = Path(asked)
    if not path.exists():
        raise ConfigError(f"--calibrate {asked} is neither a number nor a file", hint="kb eval transfer --help")
    return Settings(anchors=read(path).samples)


def fitted(samples: Sequence[Sample], file: Path, *, data: Sequence[Path]) -> str:
    """Fit all constants on some measurements, write them, and return what was done.

    Raises:
        StoreError: The file cannot be written.
        ConfigError: numpy is missing, or no kernel was measured on two devices.
    """
    if importlib.util.find_spec("numpy") is None:
        raise ConfigError("fitting takes numpy, which is not installed", hint="pip install numpy")
    sets = fit(samples)
    provenance = {
        "command": f"kb eval transfer {' '.join(path.name for path in data)} --fit {file.name}",
        "measurements": len(samples),
        "note": "all: fitted on every device; the others: without any device of that design, for tests on it",
    }
    try:
        file.write_text(written(sets, provenance=provenance), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{file} cannot be written: {error}") from error
    return f"{len(sets)} sets of constants, from {len(samples):,} measurements, written to {file.name}"
