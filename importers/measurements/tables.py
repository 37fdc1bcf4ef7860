"""Rows of a table, from CSV with the standard library or from Parquet through pyarrow."""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from kb.errors import SourceUnavailableError

Row = Mapping[str, str]

SUFFIXES = (".csv", ".parquet")


def rows(file: Path) -> Iterator[Row]:
    """Yield the rows of a table, every value as text.

    Args:
        file: ``.csv`` with a header line, or ``.parquet``.

    Raises:
        SourceUnavailableError: It cannot be read, is no such table, or pyarrow is missing.
    """
    if file.suffix == ".parquet":
        yield from _parquet(file)
        return
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            for row in reader:
                if None in row or None in row.values():
                    raise SourceUnavailableError(f"{file}, line {reader.line_num}: not as many columns as its header")
                yield row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SourceUnavailableError(f"{file} cannot be read as CSV: {error}") from error


def _parquet(file: Path) -> Iterator[Row]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise SourceUnavailableError(
            f"{file} is Parquet, and pyarrow is not installed", hint="pip install 'kernel-kb[tables]'"
        ) from error
    try:
        table = parquet.read_table(file)
    except (OSError, ArrowException) as error:
        raise SourceUnavailableError(f"{file} cannot be read as Parquet: {error}") from error
    for batch in table.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            yield {name: "" if value is None else str(value) for name, value in row.items()}
