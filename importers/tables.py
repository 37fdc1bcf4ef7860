"""Measured latencies as aiconfigurator publishes them: Parquet or CSV, one entry a kernel, device and version.

A row is what somebody else measured: evidence ``reported``, never more. Units differ by table and are settled by the
column's name and the table's; a latency of zero is no measurement.

Source:
    aiconfigurator-core 0.12.0, ``systems/data/<system>/<op>/<framework>/<version>/<table>_perf.parquet``.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kb.errors import SourceFormatError
from kb.importers import devices, kernels
from kb.importers.base import Context, Draft, Folder, Item, Provenance, Skipped, provenance_of
from kb.importers.license import of_file
from kb.importers.naming import slug, topic
from kb.importers.reading import csv_rows
from kb.importers.tree import SourceFile

MAX_TABLE_BYTES = 64 << 20
MAX_ROWS = 2_000_000
_MAX_CSV_BYTES = 900_000
"""Of one file in an entry; the store takes a mebibyte."""
_MOST_CLAIMS = 12
_LONGEST_US = 3.6e9
"""An hour: no kernel takes that long, a wrong unit does."""

_COMMON = ("framework", "version", "device", "op_name", "kernel_source")
_GROUP = (
    "phase", "gemm_dtype", "moe_dtype", "attn_dtype", "kv_cache_dtype", "mla_dtype", "gemm_type", "quant_dtype",
    "quant_type", "bmm_dtype", "nccl_dtype", "allreduce_dtype", "comm_dtype", "kernel_dtype", "backend", "comm_backend",
    "model", "model_name", "architecture", "moe_kernel", "system",
)  # fmt: skip
"""Columns that say what ran, apart from its sizes: rows that differ in one of them are different things."""
_TIMES: Mapping[str, float] = {"latency": 1000.0, "avg_ms": 1000.0, "latency_ms": 1000.0, "latency_us": 1.0}
"""Column → factor to µs."""
_MICROSECONDS = re.compile(r"moe_a2a")
"""Tables whose ``latency`` is in µs already: there it equals ``transmit_us``."""
_FURTHER = re.compile(r"(\w+)_(?:avg_t_us|us)|(\w+)_bandwidth_gbps")
_DERIVED = re.compile(r"compute_?scale|_minus_")
_ELEMENTS = re.compile(r"nccl|oneccl|custom_allreduce")


@dataclass
class _Group:
    """Rows of one thing that was measured."""

    key: tuple[tuple[str, str], ...]
    rows: list[Mapping[str, str]] = field(default_factory=list)
    zeros: int = 0

    def get(self, name: str, otherwise: str = "") -> str:
        """Return one column that all rows share."""
        return dict(self.key).get(name, otherwise)


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
        groups: dict[tuple[tuple[str, str], ...], _Group] = {}
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
            yield _draft(group, table, unit, provenance, license_)
        for other in item.files[1:]:
            yield Skipped(other.path, "describes the tables beside it", refused=False)


def _is_table(folder: Folder, file: SourceFile) -> bool:
    if file.name.endswith(("_perf.parquet", "_perf.csv")):
        return True
    if not file.name.endswith(".csv"):
        return False
    head = folder.tree.head(file.path, 2048).split(b"\n", 1)[0].decode("utf-8", "replace").strip().split(",")
    return set(_COMMON) <= set(head) and any(_unit_of(name) is not None for name in head)


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
    if name in _TIMES:
        return _TIMES[name]
    return 1.0 if re.fullmatch(r"\w+_avg_t_us", name) else None


def _unit(columns: Sequence[str], table: str) -> Mapping[str, float]:
    """Return the columns that are times with their factors to µs.

    Raises:
        SourceFormatError: There is none, or a common column is missing.
    """
    missing = [name for name in _COMMON if name not in columns]
    if missing:
        raise SourceFormatError(f"expected the columns {', '.join(_COMMON)}; {', '.join(missing)} is missing")
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
    groups: dict[tuple[tuple[str, str], ...], _Group],
    table: str,
) -> None:
    key = tuple((name, row[name]) for name in (*_COMMON, *_GROUP) if name in row)
    if len(groups) >= 5_000 and key not in groups:
        raise SourceFormatError("expected at most 5,000 different kernels in a table")
    group = groups.setdefault(key, _Group(key))
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


def _time(text: str, factor: float, place: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise SourceFormatError(f"{place}: expected a time, found {text[:40]!r}") from error
    if not math.isfinite(value) or value < 0 or value * factor > _LONGEST_US:
        raise SourceFormatError(f"{place}: expected a time of 0 to an hour, found {text[:40]}")
    return value * factor


def _sizes(row: Mapping[str, str], unit: Mapping[str, float]) -> dict[str, str]:
    skipped = {*_COMMON, *_GROUP, *unit, "transmit_us", "notify_us"}
    return {name: text for name, text in row.items() if name not in skipped and not _FURTHER.fullmatch(name) and text}


def _draft(group: _Group, table: str, unit: Mapping[str, float], provenance: Provenance, license_: str | None) -> Draft:
    device = devices.device_name(group.get("device"))
    arch = devices.arch_of(device)
    kernel = group.get("kernel_source") or group.get("op_name")
    subject = group.get("op_name") if table in ("nccl", "oneccl") else f"{group.get('op_name')}_{kernel}"
    operator, applies_to = kernels.meaning_of(group.get("op_name"))
    if operator is None and not applies_to:
        operator, applies_to = kernels.meaning_of(kernel)
    if table in ("gdn", "kda"):
        operator, applies_to = None, _delta(kernel)
    framework, version = group.get("framework"), group.get("version")
    named = [text for name, text in group.key if name in _GROUP and text and name not in ("system", "architecture")]
    about = operator or next(iter(applies_to), None)
    title = _fitting(f"{framework} {kernel}: {' '.join(named)}, {devices.short_device(device)}", 80)
    dtypes = [one for name, text in group.key if name.endswith(("dtype", "_type")) for one in devices.dtypes_of(text)]
    rows = _csv(group.rows)
    facts: dict[str, Any] = {
        "title": title,
        "summary": _fitting(
            f"{len(group.rows)} latencies that the authors of aiconfigurator measured with {framework} {version}", 160
        ),
        "outcome": "works",
        **({"operator": operator} if operator else {}),
        **({"applies_to": list(applies_to)} if applies_to else {}),
        "language": "none",
        "dtypes": list(dict.fromkeys(dtypes)),
        "tags": _tags(table, framework, kernel, device),
        "requires": {"arch": [arch]} if arch else {},
        "claims": _claims(group, unit, device, kernel, provenance),
    }
    return Draft(
        id=f"technique/{topic(about or table)}/"
        + slug(
            "measured", framework, version, device, subject, *named, *(["head"] if ".head" in provenance.path else [])
        ),
        facts={name: value for name, value in facts.items() if value not in ([], {})},
        readme=_readme(title, group, table, unit, provenance),
        files=rows,
        provenance=provenance,
        license=license_,
        restrictions=_restrictions(group, table),
        device=device,
    )


def _delta(kernel: str) -> tuple[str, ...]:
    if "conv1d" in kernel:
        return ("causal_conv1d_update",) if "update" in kernel else ()
    decode = re.search(r"decode|recurrent|update|sigmoid_gating", kernel)
    return ("gated_delta_decode",) if decode else ("gated_delta_prefill",)


def _fitting(text: str, most: int) -> str:
    plain = " ".join(text.split()).replace(" ,", ",").replace(": ,", ",")
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def _tags(table: str, framework: str, kernel: str, device: str) -> list[str]:
    raw = ["measured-table", "aiconfigurator", table, framework, kernel, devices.short_device(device)]
    return [one for one in dict.fromkeys(slug(each) for each in raw if each) if not one.startswith("x-")]


def _restrictions(group: _Group, table: str) -> tuple[str, ...]:
    said = []
    if _DERIVED.search(f"{table} {group.get('kernel_source')}"):
        said.append("Latencies are differences of two timings, not timings: small ones are noise")
    if group.get("version") in ("unknown", "kernel-level", ""):
        said.append("The version of what ran is not stated")
    return tuple(said)


def _claims(
    group: _Group, unit: Mapping[str, float], device: str, kernel: str, provenance: Provenance
) -> list[dict[str, Any]]:
    """Return a few rows spread over all sizes; every row is in the entry's table."""
    metric = next(iter(unit))
    ordered = sorted(group.rows, key=lambda row: float(row[metric]))
    step = max(1, (len(ordered) - 1) // max(1, _MOST_CLAIMS // len(unit) - 1))
    chosen = ordered[::step][: _MOST_CLAIMS // len(unit)]
    made: dict[tuple[str, str], dict[str, Any]] = {}
    for row in chosen:
        workload = _fitting(" ".join(f"{name}={text}" for name, text in _sizes(row, unit).items()) or "as named", 160)
        for name, factor in unit.items():
            metric_name = "latency_us" if name in _TIMES else f"{name.removesuffix('_avg_t_us')}_latency_us"
            made[metric_name, workload] = {
                "metric": metric_name,
                "value": float(f"{float(row[name]) * factor:.6g}"),
                "unit": "us",
                "better": "lower",
                "device": device,
                "workload": workload,
                "backend": _fitting(f"{group.get('framework')} {group.get('version')} {kernel}", 120),
                "source": _fitting(f"{provenance.repository}, {provenance.path}", 300),
            }
    return list(made.values())


def _csv(rows: Sequence[Mapping[str, str]]) -> dict[str, bytes]:
    """Write rows with the source's own columns, units and digits, cut into files that an entry may hold."""
    import csv
    import io

    files: dict[str, bytes] = {}
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, tuple(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        if text.tell() > _MAX_CSV_BYTES:
            files[_part(len(files))] = text.getvalue().encode("utf-8")
            text = io.StringIO(newline="")
            writer = csv.DictWriter(text, tuple(rows[0]), lineterminator="\n")
            writer.writeheader()
        writer.writerow(row)
    files[_part(len(files))] = text.getvalue().encode("utf-8")
    return files


def _part(number: int) -> str:
    return "rows.csv" if number == 0 else f"rows-{number + 1}.csv"


def _readme(title: str, group: _Group, table: str, unit: Mapping[str, float], provenance: Provenance) -> str:
    units = ", ".join(f"`{name}` in {'ms' if factor == 1000.0 else 'µs'}" for name, factor in unit.items())
    lines = [
        f"# {title}",
        "",
        f"{len(group.rows)} rows of the table `{table}`, in `rows.csv` with the source's own columns: {units}. The",
        "claims of this entry are a few of them, in µs. Others measured them; our judge did not.",
        "",
    ]
    if group.zeros:
        lines.append(f"- {group.zeros} rows with a latency of 0 were left out: that is no measurement.")
    if _ELEMENTS.search(table):
        lines.append("- `message_size` counts elements, not bytes.")
    if {"moe_tp_size", "tp_size", "num_v_heads", "moe_ep_size"} & set(group.rows[0]):
        lines.append("- Shards of one model carry the same name: compare rows of equal heads, TP and EP sizes only.")
    lines += [
        "- Means, warm or under CUDA graphs as the collector chose; small problems lie in L2 and may beat DRAM.",
        "",
        f"Source: {provenance.repository}{f', {provenance.commit}' if provenance.commit else ''}, `{provenance.path}`.",
        "",
    ]
    return "\n".join(lines)


IMPORTER = Tables()
