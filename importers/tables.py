"""Measured latencies as aiconfigurator publishes them: Parquet or CSV, one entry a kernel, device and version.

A row is what somebody else measured: evidence ``reported``, never more. Units differ by table and are settled by the
column's name and the table's; a latency of zero is no measurement.

Source:
    aiconfigurator-core 0.12.0, ``systems/data/<system>/<op>/<framework>/<version>/<table>_perf.parquet``.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kb.errors import SourceFormatError
from kb.importers.base import Context, Draft, Folder, Item, Skipped, provenance_of
from kb.importers.license import of_file
from kb.importers.reading import csv_rows
from kb.importers.table_drafts import COMMON, GROUP, TIMES, Group, draft_of
from kb.importers.tree import SourceFile

MAX_TABLE_BYTES = 64 << 20
MAX_ROWS = 2_000_000
_LONGEST_US = 3.6e9
"""An hour: no kernel takes that long, a wrong unit does."""

_MICROSECONDS = re.compile(r"moe_a2a")
"""Tables whose ``latency`` is in µs already: there it equals ``transmit_us``."""


class Tables:
    """Reads measured tables."""

    name = "aiconfigurator"
    summary = "aiconfigurator's measured latencies: …_perf.parquet, or the same columns as CSV; its notes on reuse"

    def discover(self, folder: Folder) -> Iterable[Item]:
        """Claim tables by their names and, for CSV, by their header; claim what describes them."""
        described = [file for file in folder.files if file.name in ("collection_meta.yaml", "reuse.yaml")]
        tables = [file for file in folder.files if _is_table(folder, file)]
        for file in tables:
            meta = tuple(each for each in described if each.name == "collection_meta.yaml" and file is tables[0])
            yield Item(folder.tree, (file, *meta))
        for file in described:
            if file.name == "reuse.yaml" or not tables:
                yield Item(folder.tree, (file,))
        for file in folder.files:
            if file.name.endswith(".yaml") and file not in described and _is_system(folder, file):
                yield Item(folder.tree, (file,))

    def parse(self, item: Item, context: Context) -> Iterator[Draft | Skipped]:
        """Make one draft of each kernel, device and version in a table.

        Raises:
            SourceFormatError: It is no such table.
        """
        del context
        file = item.files[0]
        if file.name.endswith(".yaml"):
            yield _described(item)
            return
        body = item.tree.read(file.path, limit=MAX_TABLE_BYTES)
        table = _table_name(file.name)
        columns, rows = _rows(body, parquet=file.name.endswith(".parquet"))
        unit = _unit(columns, table)
        groups: dict[tuple[tuple[str, str], ...], Group] = {}
        for number, row in enumerate(rows, start=1):
            _sort_in(row, number, unit, groups, table)
        if not groups:
            raise SourceFormatError("expected rows, found none")
        provenance = provenance_of(file, item.tree, body)
        license_ = of_file(
            item.tree, file.path, body if file.name.endswith(".csv") else b"", default=item.tree.base.license
        )
        for group in groups.values():
            if not group.rows:
                where = f"{item.path}#{' '.join(text for _, text in group.key)[:120]}"
                yield Skipped(where, f"all {group.zeros} latencies are 0, which is no measurement")
                continue
            yield draft_of(group, table, unit, provenance, license_)
        for other in item.files[1:]:
            yield Skipped(other.path, "describes the tables beside it", refused=False)


def _is_table(folder: Folder, file: SourceFile) -> bool:
    if file.name.endswith(("_perf.parquet", "_perf.csv")):
        return True
    if not file.name.endswith(".csv"):
        return False
    head = folder.tree.head(file.path, 2048).split(b"\n", 1)[0].decode("utf-8", "replace").strip().split(",")
    return set(COMMON) <= set(head) and any(_unit_of(name) is not None for name in head)


def _is_system(folder: Folder, file: SourceFile) -> bool:
    head = folder.tree.head(file.path, 8192)
    return b"SPDX-License-Identifier" in head and (
        b"\ndata_dir:" in head or b"reuse" in head or b"queryable" in head.lower() or b"attention kernel" in head
    )


def _described(item: Item) -> Skipped:
    name = item.files[0].name
    if name == "reuse.yaml":
        return Skipped(item.path, "declares another version's table as an approximation: no measurement of its own")
    if name == "collection_meta.yaml":
        return Skipped(item.path, "describes tables that are not here", refused=False)
    return Skipped(item.path, "a description of systems or of how tables are reused, not a measurement", refused=False)


def _table_name(name: str) -> str:
    stem = name.rsplit(".", 1)[0].removesuffix(".head40").rsplit("__", 1)[-1]
    return stem.removesuffix("_perf")


def _rows(body: bytes, *, parquet: bool) -> tuple[tuple[str, ...], Iterator[Mapping[str, str]]]:
    if parquet:
        return _parquet(body)
    rows = csv_rows(body, most=MAX_ROWS)
    first = next(rows, None)
    if first is None:
        raise SourceFormatError("expected rows, found none")

    def every() -> Iterator[Mapping[str, str]]:
        yield first
        yield from rows

    return tuple(first), every()


def _parquet(body: bytes) -> tuple[tuple[str, ...], Iterator[Mapping[str, str]]]:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise SourceFormatError("Parquet needs the package pyarrow: pip install 'kernel-kb[tables]'") from error
    if body[:4] != b"PAR1" or body[-4:] != b"PAR1":
        raise SourceFormatError("expected a Parquet file, found something else or a part of one")
    try:
        opened = parquet.ParquetFile(arrow.BufferReader(body))
        if opened.metadata.num_rows > MAX_ROWS or opened.metadata.num_columns > 200:
            raise SourceFormatError(f"expected at most {MAX_ROWS:,} rows and 200 columns")
        unpacked = sum(opened.metadata.row_group(n).total_byte_size for n in range(opened.metadata.num_row_groups))
        if unpacked > 16 * MAX_TABLE_BYTES:
            raise SourceFormatError("the table unpacks to more than is allowed")
        names = tuple(str(name) for name in opened.schema_arrow.names)
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise SourceFormatError(f"expected a Parquet file, found: {str(error)[:200]}") from error

    def every() -> Iterator[Mapping[str, str]]:
        try:
            for batch in opened.iter_batches(batch_size=4096):
                for row in batch.to_pylist():
                    yield {name: _cell(value) for name, value in row.items()}
        except (arrow.ArrowException, OSError) as error:
            raise SourceFormatError(f"expected a Parquet file, found: {str(error)[:200]}") from error

    return names, every()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str | int | bool):
        return str(value)
    raise SourceFormatError(f"expected plain values in a table, found {type(value).__name__}")


def _unit_of(name: str) -> float | None:
    if name in TIMES:
        return TIMES[name]
    return 1.0 if re.fullmatch(r"\w+_avg_t_us", name) else None


def _unit(columns: Sequence[str], table: str) -> Mapping[str, float]:
    """Return the columns that are times with their factors to µs.

    Raises:
        SourceFormatError: There is none, or a common column is missing.
    """
    missing = [name for name in COMMON if name not in columns]
    if missing:
        raise SourceFormatError(f"expected the columns {', '.join(COMMON)}; {', '.join(missing)} is missing")
    found = {name: factor for name in columns if (factor := _unit_of(name)) is not None}
    if not found:
        raise SourceFormatError("expected a column of times: latency, avg_ms or …_avg_t_us")
    if _MICROSECONDS.search(table) and "latency" in found:
        if "transmit_us" not in columns:
            raise SourceFormatError("expected transmit_us beside latency, which tells that both are in µs")
        found["latency"] = 1.0
    return found


def _sort_in(
    row: Mapping[str, str],
    number: int,
    unit: Mapping[str, float],
    groups: dict[tuple[tuple[str, str], ...], Group],
    table: str,
) -> None:
    key = tuple((name, row[name]) for name in (*COMMON, *GROUP) if name in row)
    if len(groups) >= 5_000 and key not in groups:
        raise SourceFormatError("expected at most 5,000 different kernels in a table")
    group = groups.setdefault(key, Group(key))
    _check_sizes(row, number)
    times = {}
    for name, factor in unit.items():
        times[name] = _time(row[name], factor, f"row {number}, {name}")
    if "latency" in times and "transmit_us" in row and _MICROSECONDS.search(table):
        stated = _time(row["transmit_us"], 1.0, f"row {number}, transmit_us")
        notify = _time(row.get("notify_us") or "0", 1.0, f"row {number}, notify_us")
        if not any(math.isclose(times["latency"], each, rel_tol=1e-3) for each in (stated, stated + notify)):
            raise SourceFormatError(f"row {number}: latency and transmit_us differ, so the unit is not sure")
    if any(value == 0.0 for value in times.values()):
        group.zeros += 1
        return
    group.rows.append(row)


_SIZES = (
    "m",
    "n",
    "k",
    "batch_size",
    "num_tokens",
    "hidden_size",
    "inter_size",
    "head_dim",
    "message_size",
    "num_heads",
)
_SIZE = re.compile(r"\d{1,18}(\.0)?|")


def _check_sizes(row: Mapping[str, str], number: int) -> None:
    for name in _SIZES:
        if name in row and not _SIZE.fullmatch(row[name]):
            raise SourceFormatError(f"row {number}, {name}: expected a size, found {row[name][:40]!r}")


def _time(text: str, factor: float, place: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise SourceFormatError(f"{place}: expected a time, found {text[:40]!r}") from error
    if not math.isfinite(value) or value < 0 or value * factor > _LONGEST_US:
        raise SourceFormatError(f"{place}: expected a time of 0 to an hour, found {text[:40]}")
    return value * factor


IMPORTER = Tables()
