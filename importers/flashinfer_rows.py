"""Workloads and traces of FlashInfer Trace: JSON lines in, one entry for each definition, solution and device."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kb.errors import SourceFormatError
from kb.importers import devices, flashinfer_blobs
from kb.importers.base import Context, Draft, Item, Provenance, values_digest
from kb.importers.flashinfer_entries import TOPIC, draft_of, dump, plain
from kb.importers.flashinfer_schema import INPUTS, text_of_field
from kb.importers.kernels import meaning_of
from kb.importers.license import of_file
from kb.importers.naming import slug
from kb.importers.streams import file_digest, rows_of

LONGEST_MS = 3_600_000.0
"""An hour: a latency above it is in another unit."""
_MOST_CLAIMS = 64
_PART_BYTES = 700_000
"""Of one entry's rows; what is more goes into a further part."""
_HELD_BYTES = 24 << 20
"""Of all groups together, before the largest is handed out."""
_FEWEST_ROWS = 4
_AGREEMENT = 0.05
"""Latencies are rounded to about 1 part in 100; a factor beyond this share means two units."""


def check_row(row: Mapping[str, Any], definition: str | None = None) -> Mapping[str, Any]:
    """Check one row, and give a bare workload of the dialect the shape that all others have.

    Args:
        row: One line of a file.
        definition: Name of the definition that bare workloads are of.

    Raises:
        SourceFormatError: It is no workload and no trace.
    """
    if "workload" not in row and "uuid" in row:
        if definition is None:
            raise SourceFormatError("a bare workload: expected a definition.json beside the file, which names it")
        row = {"definition": definition, "solution": None, "workload": dict(row), "evaluation": None}
    text_of_field(row, "definition")
    workload = row.get("workload")
    if not isinstance(workload, dict):
        raise SourceFormatError("field workload: expected an object")
    text_of_field(workload, "uuid", 100)
    axes = workload.get("axes")
    sizes = axes.values() if isinstance(axes, dict) else (None,)
    if not all(type(size) is int and 0 <= size < 1 << 48 for size in sizes):
        raise SourceFormatError("field workload.axes: expected an object of sizes")
    inputs = workload.get("inputs")
    if not isinstance(inputs, dict):
        raise SourceFormatError("field workload.inputs: expected an object")
    for name, one in inputs.items():
        _check_input(name[:60], one)
    if row.get("solution") is not None:
        text_of_field(row, "solution")
    if row.get("evaluation") is not None:
        _check_evaluation(row["evaluation"])
    return row


def _check_input(name: str, one: object) -> None:
    if not isinstance(one, dict) or one.get("type") not in INPUTS:
        raise SourceFormatError(f"field workload.inputs.{name}: expected one of the types {', '.join(INPUTS)}")
    if one["type"] == "scalar" and not isinstance(one.get("value"), int | float):
        raise SourceFormatError(f"field workload.inputs.{name}.value: expected a number, true or false")
    if one["type"] == "safetensors":
        flashinfer_blobs.blob_path(text_of_field(one, "path"))
        text_of_field(one, "tensor_key")


def _check_evaluation(evaluation: object) -> None:
    if not isinstance(evaluation, dict):
        raise SourceFormatError("field evaluation: expected an object or null")
    text_of_field(evaluation, "status", 40)
    check_performance(evaluation.get("performance"))
    errors = evaluation.get("correctness")
    if errors is not None and not isinstance(errors, dict):
        raise SourceFormatError("field evaluation.correctness: expected an object or null")
    environment = evaluation.get("environment")
    if environment is not None and not isinstance(environment, dict):
        raise SourceFormatError("field evaluation.environment: expected an object or null")


def check_performance(figures: object) -> None:
    """Refuse figures that cannot be milliseconds, or that contradict each other.

    Raises:
        SourceFormatError: A latency is none, is longer than an hour, or the factor does not follow from the latencies.
    """
    if figures is None:
        return
    if not isinstance(figures, dict):
        raise SourceFormatError("field performance: expected an object or null")
    read = {name: figures.get(name) for name in ("latency_ms", "reference_latency_ms", "speedup_factor")}
    for name, value in read.items():
        most = LONGEST_MS if name.endswith("_ms") else math.inf
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise SourceFormatError(f"field {name}: expected a number, found {value!r:.40}")
        if value is not None and not 0 <= value <= most:
            raise SourceFormatError(f"field {name}: expected milliseconds, 0 to an hour, found {value!r:.40}")
    latency, reference, factor = (read[name] or 0 for name in read)
    if latency and reference and factor and abs(reference / latency / factor - 1) > _AGREEMENT:
        raise SourceFormatError(
            f"speedup_factor {factor:g} does not follow from {reference:g} and {latency:g} ms: the unit is not sure"
        )


@dataclass
class _Group:
    """Rows of one entry."""

    definition: str
    solution: str | None
    device: str | None
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    size: int = 0
    part: int = 1


def rows_drafts(item: Item, context: Context) -> Iterator[Draft]:
    """Make drafts of a file of JSON lines; memory does not grow with the file.

    Args:
        item: The file, and perhaps the list of digests beside it; ``extra`` may name the definition of bare workloads.
        context: The device, for evaluations that name none.

    Raises:
        SourceFormatError: A line is broken: nothing of the file is taken then.
    """
    definition = item.extra.get("definition")

    def check(row: Mapping[str, Any]) -> Mapping[str, Any]:
        return check_row(row, definition)

    digest, _ = file_digest(item.tree, item.path)
    count = sum(1 for _ in rows_of(item.tree, item.path, check))
    if not count:
        raise SourceFormatError("expected at least one row, found none")
    origin = item.tree.origin_of(item.path)
    where = Provenance(origin.repository, origin.path, digest, origin.commit, origin.url, origin.note)
    stated = of_file(item.tree, item.path, item.tree.head(item.path))
    known = flashinfer_blobs.known_digests(item)
    groups: dict[tuple[str, str | None, str | None], _Group] = {}
    held = 0
    for row in rows_of(item.tree, item.path, check):
        device = _device_of(row, context)
        key = (row["definition"], row.get("solution"), device)
        group = groups.setdefault(key, _Group(*key))
        size = len(dump(row)) + 400  # indented once more in the entry
        if group.rows and group.size + size > _PART_BYTES:
            held -= group.size
            yield _emitted(item, group, where, stated, known)
        group.rows.append(row)
        group.size += size
        held += size
        if held > _HELD_BYTES:
            largest = max(groups.values(), key=lambda one: one.size)
            held -= largest.size
            yield _emitted(item, largest, where, stated, known)
    for group in groups.values():
        if group.rows:
            yield _emitted(item, group, where, stated, known)


def _device_of(row: Mapping[str, Any], context: Context) -> str | None:
    evaluation = row.get("evaluation")
    if evaluation is None:
        return None
    hardware = (evaluation.get("environment") or {}).get("hardware")
    if isinstance(hardware, str) and hardware and len(hardware) <= 80:
        return devices.device_name(hardware)
    return context.device


def _emitted(
    item: Item, group: _Group, where: Provenance, stated: str | None, known: Mapping[str, Mapping[str, Any]]
) -> Draft:
    """Make the draft of what a group holds, and empty it for a next part."""
    rows, part = group.rows, group.part
    group.rows, group.size, group.part = [], 0, part + 1
    if group.solution is None and group.device is None and all(row.get("evaluation") is None for row in rows):
        return _workloads(item, group.definition, rows, part, where, stated, known)
    return _traces(item, group, rows, part, where, stated, known)


def _tags(kind: str, rows: Sequence[Mapping[str, Any]], item: Item) -> list[str]:
    custom = any(one["type"] == "custom" for row in rows for one in row["workload"]["inputs"].values())
    dialect = ["sol-execbench"] if custom or "definition" in item.extra else []
    return [kind, "flashinfer-trace", *dialect, "unverified"]


def _workloads(
    item: Item,
    definition: str,
    rows: Sequence[Mapping[str, Any]],
    part: int,
    where: Provenance,
    stated: str | None,
    known: Mapping[str, Mapping[str, Any]],
) -> Draft:
    files = {"workloads.json": dump(rows), **flashinfer_blobs.blob_files(item, rows, known)}
    facts = {
        "title": plain(f"Workloads of {definition}", 80),
        "summary": plain(f"{len(rows)} workloads of {definition}: shapes to judge at, as published", 160),
        "outcome": "works",
        "tags": _tags("workloads", rows, item),
        **_about(definition),
    }
    shown = [f"- {shape_of(row)}" for row in rows[:12]]
    readme = "\n".join(
        [
            f"# Workloads of {plain(definition, 200)}",
            "",
            f"{len(rows)} shapes, as published; no figure.",
            "",
            *shown,
            "",
        ]
    )
    name = slug("workloads", definition, f"part-{part}" if part > 1 else "")
    return draft_of(f"technique/{TOPIC}/{name}", facts, readme, files, where, stated)


def _about(definition: str) -> dict[str, Any]:
    operator, relatives = meaning_of(definition)
    about = [operator] if operator else list(relatives)
    return {"applies_to": about} if about else {}


def shape_of(row: Mapping[str, Any]) -> str:
    """Return the axes of a row, and what tells it from others of these axes: the beginning of its uuid."""
    workload = row["workload"]
    axes = " ".join(f"{name}={size}" for name, size in workload["axes"].items())
    return plain(f"{axes} ({workload['uuid'][:8]})".strip(), 150)


def _traces(
    item: Item,
    group: _Group,
    rows: Sequence[Mapping[str, Any]],
    part: int,
    where: Provenance,
    stated: str | None,
    known: Mapping[str, Mapping[str, Any]],
) -> Draft:
    solution = group.solution or "an unnamed solution"
    measured = [(shape_of(row), row["workload"]["uuid"], _latency(row)) for row in rows]
    statuses = [str((row.get("evaluation") or {}).get("status", "NOT_RUN")) for row in rows]
    facts = {
        **trace_facts(group.definition, solution, group.device, measured, statuses, where),
        "tags": _tags("trace", rows, item),
    }
    name = slug("trace", group.definition, solution, group.device or "no-device", f"part-{part}" if part > 1 else "")
    return draft_of(
        f"technique/{TOPIC}/{name}",
        facts,
        trace_readme(group.definition, solution, group.device, measured, statuses),
        {"traces.json": dump(rows), **flashinfer_blobs.blob_files(item, rows, known)},
        where,
        stated,
        values=_values(measured),
        device=group.device,
    )


def _latency(row: Mapping[str, Any]) -> float | None:
    evaluation = row.get("evaluation") or {}
    if evaluation.get("status") != "PASSED":
        return None
    value = (evaluation.get("performance") or {}).get("latency_ms")
    return float(value) if value else None  # 0 is the format's default, and no measurement


def _values(measured: Sequence[tuple[str, str, float | None]]) -> str | None:
    pairs = [[uuid, latency] for _, uuid, latency in measured if latency is not None]
    return values_digest(pairs) if len(pairs) >= _FEWEST_ROWS else None


def trace_facts(
    definition: str,
    solution: str,
    device: str | None,
    measured: Sequence[tuple[str, str, float | None]],
    statuses: Sequence[str],
    where: Provenance,
) -> dict[str, Any]:
    """Return the facts of measured workloads: figures with their device, or that nothing passed.

    Args:
        definition: Name of what is computed.
        solution: Name of what ran.
        device: As it reports itself; None if the source names none, and then no figure is claimed.
        measured: Shape, uuid and latency in milliseconds of each workload; None where there is none.
        statuses: As the source spells them.
        where: The source.
    """
    passed = sum(one == "PASSED" for one in statuses)
    on = devices.short_device(device) if device else "a device that is not named"
    facts: dict[str, Any] = {
        "title": plain(f"Trace: {definition}, {on}", 80),
        "summary": plain(f"{passed} of {len(statuses)} workloads passed on {on}: {solution}", 160),
        "outcome": _outcome(statuses),
        **_about(definition),
    }
    if not passed:
        counts = ", ".join(f"{statuses.count(one)} {one}" for one in sorted(set(statuses)))
        facts["negative"] = {
            "hypothesis": plain(f"{solution} computes {definition}", 300),
            "condition": plain(f"on {device or 'a device that the source does not name'}", 200),
            "effect": plain(f"none of {len(statuses)} workloads passed: {counts}", 300),
        }
    claims = _claims(solution, device, measured, where) if device else []
    if claims:
        facts["claims"] = claims
    return facts


def _outcome(statuses: Sequence[str]) -> str:
    if "PASSED" in statuses:
        return "works"
    return "incorrect" if any(one.startswith("INCORRECT") for one in statuses) else "inconclusive"


def _claims(
    solution: str, device: str, measured: Sequence[tuple[str, str, float | None]], where: Provenance
) -> list[dict[str, Any]]:
    # The reference is plain Python: neither a baseline nor a speed-up, so neither is stated.
    source = plain(f"{where.repository} {where.path}", 300)
    made: dict[str, dict[str, Any]] = {}
    for shape, _, latency in measured:
        if latency is not None and shape not in made and len(made) < _MOST_CLAIMS:
            made[shape] = {
                "metric": "latency_us",
                "value": round(latency * 1000, 6),
                "unit": "us",
                "better": "lower",
                "device": device[:80],
                "workload": shape or "as published",
                "backend": plain(solution, 120),
                "source": source,
            }
    return [one for one in made.values() if one["value"] > 0]


def trace_readme(
    definition: str,
    solution: str,
    device: str | None,
    measured: Sequence[tuple[str, str, float | None]],
    statuses: Sequence[str],
) -> str:
    """Return the readme of measured workloads; the arguments are those of :func:`trace_facts`."""
    timed = [(shape, latency) for shape, _, latency in measured if latency is not None]
    lines = [f"- {shape}: {latency * 1000:.6g} us" for shape, latency in timed[:12]]
    more = [f"- … and {len(timed) - 12} more"] if len(timed) > 12 else []
    on = device or "a device that the source does not name, so no figure is claimed (--device)"
    return "\n".join(
        [
            f"# Trace of {plain(definition, 200)}",
            "",
            f"{plain(solution, 200)} on {on}: {statuses.count('PASSED')} of {len(statuses)} workloads passed.",
            "Others measured it; our judge did not. The source's speed-up factors are against a plain reference in",
            "Python: they are kept in the file and shown nowhere. Of repeated runs the first is claimed.",
            "",
            *lines,
            *more,
            "",
        ]
    )
