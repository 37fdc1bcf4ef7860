"""Read Nsight Systems: its SQLite export, and the CSV of ``nsys stats`` for kernels."""

import csv
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from kb.importers.traces.opening import Limited
from kb.importers.traces.profile import Key, Profile, checked_time, device_of, malformed

_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_OTHERS = {"CUPTI_ACTIVITY_KIND_MEMCPY": "[CUDA memcpy]", "CUPTI_ACTIVITY_KIND_MEMSET": "[CUDA memset]"}
_MOST_STEPS = 40_000
"""Callbacks of SQLite's virtual machine, each after 100,000 of its steps: some minutes."""
_UNITS = {"(ns)": 1e-3, "(us)": 1.0, "(μs)": 1.0, "(ms)": 1e3, "(s)": 1e6, "(sec)": 1e6}
_LONGEST_LINE = 1 << 20
_MOST_PREAMBLE = 200


def read_sqlite(path: Path) -> Profile:
    """Read the export that ``nsys export --type sqlite`` writes.

    Args:
        path: The database; it is opened for reading only.

    Raises:
        SourceUnavailableError: It is damaged, has no table of kernels, or nothing in it took time.
    """
    profile = Profile("Nsight Systems, SQLite export")
    left = [_MOST_STEPS]

    def tick() -> int:
        left[0] -= 1
        return int(left[0] < 0)

    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            database.set_progress_handler(tick, 100_000)
            database.execute("PRAGMA trusted_schema = OFF")
            _kernels(database, profile)
            for table, name in _OTHERS.items():
                _other(database, profile, table, name)
            profile.device = _device(database)
    except sqlite3.Error as error:
        what = "it takes too long" if left[0] < 0 else str(error)
        raise malformed(f"SQLite: {what}") from error
    if profile.total_us <= 0:
        raise malformed("no kernel in it took any time")
    return profile


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    """Return the columns of a table; none if there is no table of this name, a view among them."""
    found = database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone()
    return {row[1] for row in database.execute(f"PRAGMA table_info({table})")} if found else set()


def _kernels(database: sqlite3.Connection, profile: Profile) -> None:
    columns = _columns(database, _KERNELS)
    name = next((each for each in ("demangledName", "shortName", "mangledName") if each in columns), None)
    if name is None or not {"start", "end"} <= columns or not {"id", "value"} <= _columns(database, "StringIds"):
        raise malformed(f"there is no table {_KERNELS} with names: was the program profiled with --trace=cuda?")
    rows = database.execute(
        f"SELECT s.value, count(*), sum(k.end - k.start), min(k.end - k.start) FROM {_KERNELS} k "  # noqa: S608
        f"LEFT JOIN StringIds s ON s.id = k.{name} GROUP BY k.{name}"
    )
    for kernel, calls, spent, shortest in rows:
        checked_time(shortest, "the shortest call of a kernel")
        profile.add(Key(profile.named(kernel), None), checked_time(spent, "a kernel") * 1e-3, calls)


def _other(database: sqlite3.Connection, profile: Profile, table: str, name: str) -> None:
    if {"start", "end"} <= _columns(database, table):
        query = f"SELECT count(*), sum(end - start), min(end - start) FROM {table}"  # noqa: S608
        calls, spent, shortest = database.execute(query).fetchone()
        if calls:
            checked_time(shortest, f"the shortest {name}")
            profile.add(Key(name, None), checked_time(spent, name) * 1e-3, calls)


def _device(database: sqlite3.Connection) -> str | None:
    if "name" not in _columns(database, "TARGET_INFO_GPU"):
        return None
    return device_of(row[0] for row in database.execute("SELECT name FROM TARGET_INFO_GPU LIMIT 64"))


def read_csv(stream: Limited) -> Profile:
    """Read what ``nsys stats --format csv`` writes for ``cuda_gpu_kern_sum``, ``cuda_gpu_trace`` and ``cuda_gpu_sum``.

    Args:
        stream: Its bytes; lines before the table are passed over.

    Raises:
        SourceUnavailableError: There is no such table, a row is broken, or nothing in it took time.
    """
    profile = Profile("Nsight Systems, CSV")
    rows = csv.reader(_lines(stream))
    try:
        columns = _head(rows)
        spent, unit, calls = _time_column(columns)
        where = columns["Name"]
        for number, row in enumerate(rows, start=1):
            if not row:
                break
            if len(row) <= max(spent, where):
                raise malformed(f"row {number} has {len(row)} columns, and should have {len(columns)}")
            time_us = checked_time(_number(row[spent], number), f"row {number}") * unit
            count = 1 if calls is None else int(checked_time(_number(row[calls], number), f"row {number}, calls"))
            profile.add(Key(profile.named(row[where].strip()), None), time_us, count)
            if profile.device is None and "Device" in columns:
                profile.device = device_of([row[columns["Device"]].rsplit(" (", 1)[0].strip()])
    except csv.Error as error:
        raise malformed(f"CSV: {error}") from error
    if profile.total_us <= 0:
        raise malformed("no kernel in it took any time")
    return profile


def _lines(stream: Limited) -> Iterator[str]:
    rest = ""
    while body := stream.read(1 << 20):
        # A character that is cut in two at the edge of a block would only spoil a name, and names are ASCII.
        *lines, rest = (rest + body.decode("utf-8", "replace")).split("\n")
        if len(rest) > _LONGEST_LINE:
            raise malformed("a line is too long")
        yield from (line.rstrip("\r") for line in lines)
    if rest:
        yield rest.rstrip("\r")


def _head(rows: Iterator[Sequence[str]]) -> dict[str, int]:
    """Find the head of the table, and return the place of every column."""
    for number, row in enumerate(rows):
        names = [one.strip().lstrip("\ufeff") for one in row]
        if "Name" in names and any(one.startswith(("Total Time", "Duration")) for one in names):
            return {name: place for place, name in reversed(list(enumerate(names)))}
        if number > _MOST_PREAMBLE:
            break
    raise malformed("expected a table with the columns Name and Total Time or Duration")


def _time_column(columns: Mapping[str, int]) -> tuple[int, float, int | None]:
    """Return the place of the time, its unit in microseconds, and the place of the number of calls."""
    name = next(one for one in columns if one.startswith(("Total Time", "Duration")))
    unit = next((factor for mark, factor in _UNITS.items() if mark in name), 1e-3)
    return columns[name], unit, columns.get("Instances") if name.startswith("Total") else None


def _number(text: str, row: int) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError as error:
        raise malformed(f"row {row}: expected a number, found {text[:40]!r}") from error
