"""Latencies of aiconfigurator's tables (``data/<system>/<op>/<framework>/<version>/*_perf.parquet``, or CSV).

``latency`` is in ms in the tables that are read here. A row is a measurement of ``framework version kernel_source`` at
a shape; columns of text and the sizes of the model make up the series, so that a shard of another width, another
format and another routing are other problems.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from kb.importers.measurements.costs import COSTS
from kb.importers.measurements.tables import Row, rows
from kb.prediction import Sample

_WHO = frozenset({"framework", "version", "device", "op_name", "kernel_source", "latency", "system", "model_name"})

_TEXT = frozenset(
    {"gemm_dtype", "moe_dtype", "attn_dtype", "kv_cache_dtype", "distribution", "phase", "kernel_source", "backend"}
)
"""Columns that are words; all others of a shape are sizes."""

_TRAFFIC = frozenset({"m", "num_tokens", "batch_size", "isl", "step", "seq_len"})

_NEEDED = frozenset({"framework", "version", "device", "op_name", "kernel_source", "latency"})

_US_PER_MS = 1000.0


def recognises(columns: frozenset[str]) -> bool:
    """Tell whether a table with these columns is one of aiconfigurator's."""
    return columns >= _NEEDED


def samples(file: Path, *, skip: Callable[[str], None]) -> list[Sample]:
    """Read the latencies of one table.

    Args:
        file: The table.
        skip: Told why a row was left out, once a row.

    Returns:
        A sample a row; rows with no cost model or no number are told to ``skip``.

    Raises:
        SourceUnavailableError: The table cannot be read.
    """
    made = []
    for row in rows(file):
        operator = row.get("op_name", "")
        if operator not in COSTS:
            skip(f"no cost model for {operator or 'a row without op_name'}")
            continue
        try:
            made.append(_sample(row))
        except KeyError as error:
            skip(f"{operator}: no column or format {error.args[0]!r}")
        except (ValueError, ZeroDivisionError, OverflowError):
            skip(f"{operator}: a size or a time is not a positive number")
    return made


def _sample(row: Row) -> Sample:
    operator = row["op_name"]
    sizes = {name: float(value) for name, value in row.items() if name not in _WHO | _TEXT and value != ""}
    if not all(math.isfinite(size) and size >= 0 for size in sizes.values()):
        raise ValueError
    latency = float(row["latency"]) * _US_PER_MS
    formats = {name: value for name, value in row.items() if name in _TEXT}
    work = COSTS[operator](sizes, formats)
    if operator == "gdn":
        # Tokens are batch times length there: an axis that says nothing of its own.
        sizes.pop("num_tokens", None)
    axes = {name: size for name, size in sizes.items() if name in _TRAFFIC}
    return Sample(
        device=row["device"],
        operator=_family(operator, formats),
        kernel=" ".join((row["framework"], row["version"], row["kernel_source"])),
        series=_series(formats, sizes),
        axes=axes,
        work=work,
        latency_us=latency,
    )


def _family(operator: str, formats: Mapping[str, str]) -> str:
    if operator != "gdn":
        return operator
    part = "conv" if "conv" in formats["kernel_source"] else "delta_rule"
    return f"gdn_{part}_{formats['phase']}"


def _series(formats: Mapping[str, str], sizes: Mapping[str, float]) -> str:
    words = [f"{name}={formats[name]}" for name in sorted(formats) if name != "kernel_source"]
    return " ".join([*words, *(f"{name}={sizes[name]:g}" for name in sorted(sizes) if name not in _TRAFFIC)])
