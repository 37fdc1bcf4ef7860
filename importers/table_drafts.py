"""Entries made of the rows of a measured table: what ran, its sizes, a few claims, and all rows beside them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kb.importers import devices, kernels
from kb.importers.base import Draft, Provenance
from kb.importers.naming import slug, topic

_MAX_CSV_BYTES = 900_000
"""Of one file in an entry; the store takes a mebibyte."""
_MOST_CLAIMS = 12
COMMON = ("framework", "version", "device", "op_name", "kernel_source")
GROUP = (
    "phase", "gemm_dtype", "moe_dtype", "attn_dtype", "kv_cache_dtype", "mla_dtype", "gemm_type", "quant_dtype",
    "quant_type", "bmm_dtype", "nccl_dtype", "allreduce_dtype", "comm_dtype", "kernel_dtype", "backend", "comm_backend",
    "model", "model_name", "architecture", "moe_kernel", "system",
)  # fmt: skip
"""Columns that say what ran, apart from its sizes: rows that differ in one of them are different things."""
TIMES: Mapping[str, float] = {"latency": 1000.0, "avg_ms": 1000.0, "latency_ms": 1000.0, "latency_us": 1.0}
"""Column → factor to µs."""
_FURTHER = re.compile(r"(\w+)_(?:avg_t_us|us)|(\w+)_bandwidth_gbps")
_DERIVED = re.compile(r"compute_?scale|_minus_")
_ELEMENTS = re.compile(r"nccl|oneccl|custom_allreduce")


@dataclass
class Group:
    """Rows of one thing that was measured."""

    key: tuple[tuple[str, str], ...]
    rows: list[Mapping[str, str]] = field(default_factory=list)
    zeros: int = 0

    def get(self, name: str, otherwise: str = "") -> str:
        """Return one column that all rows share."""
        return dict(self.key).get(name, otherwise)


def _sizes(row: Mapping[str, str], unit: Mapping[str, float]) -> dict[str, str]:
    skipped = {*COMMON, *GROUP, *unit, "transmit_us", "notify_us"}
    return {name: text for name, text in row.items() if name not in skipped and not _FURTHER.fullmatch(name) and text}


def draft_of(
    group: Group, table: str, unit: Mapping[str, float], provenance: Provenance, license_: str | None
) -> Draft:
    """Return the entry of one group.

    Args:
        group: Its rows; at least one.
        table: The table's name, without ``_perf``.
        unit: Columns that are times, with their factors to µs.
        provenance: Where the file is from.
        license_: SPDX id, or None where none was found.
    """
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
    named = [text for name, text in group.key if name in GROUP and text and name not in ("system", "architecture")]
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
        return ("causal_conv1d_update",) if "update" in kernel else ("causal_conv1d",)
    decode = re.search(r"decode|recurrent|update|sigmoid_gating", kernel)
    return ("gated_delta_decode",) if decode else ("gated_delta_prefill",)


def _fitting(text: str, most: int) -> str:
    plain = " ".join(text.split()).replace(" ,", ",").replace(": ,", ",")
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def _tags(table: str, framework: str, kernel: str, device: str) -> list[str]:
    raw = ["measured-table", "aiconfigurator", table, framework, kernel, devices.short_device(device)]
    return [one for one in dict.fromkeys(slug(each) for each in raw if each) if not one.startswith("x-")]


def _restrictions(group: Group, table: str) -> tuple[str, ...]:
    said = []
    if _DERIVED.search(f"{table} {group.get('kernel_source')}"):
        said.append("Latencies are differences of two timings, not timings: small ones are noise")
    if group.get("version") in ("unknown", "kernel-level", ""):
        said.append("The version of what ran is not stated")
    return tuple(said)


def _claims(
    group: Group, unit: Mapping[str, float], device: str, kernel: str, provenance: Provenance
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
            metric_name = "latency_us" if name in TIMES else f"{name.removesuffix('_avg_t_us')}_latency_us"
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


def _readme(title: str, group: Group, table: str, unit: Mapping[str, float], provenance: Provenance) -> str:
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
