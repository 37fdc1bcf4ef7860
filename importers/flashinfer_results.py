"""What contests and FlashInfer itself keep beside its format: results, summaries of runs, shapes to dispatch on."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kb.errors import SourceFormatError
from kb.importers import devices
from kb.importers.base import Context, Draft, Item, Provenance, provenance_of, values_digest
from kb.importers.flashinfer_entries import TOPIC, draft_of, dump, plain
from kb.importers.flashinfer_rows import check_performance, trace_facts, trace_readme
from kb.importers.flashinfer_schema import text_of_field
from kb.importers.kernels import meaning_of
from kb.importers.license import of_file
from kb.importers.naming import slug
from kb.importers.reading import object_of

_DEPTH = 12
_MOST_BYTES = 1 << 20
_FEWEST_ROWS = 4
_MOST_NOTES = 8


def results_drafts(item: Item, context: Context) -> Iterator[Draft]:
    """Make a draft of each definition in a file of results; the format names no device.

    Args:
        item: The file.
        context: The device, as the user states it; without one no figure is claimed.

    Raises:
        SourceFormatError: It is no file of results.
    """
    raw = item.tree.read(item.path)
    body = object_of(raw, depth=_DEPTH)
    results = body.get("results")
    if not isinstance(results, dict) or not results:
        raise SourceFormatError("field results: expected an object of definitions")
    where = provenance_of(item.files[0], item.tree, raw)
    stated = of_file(item.tree, item.path, raw)
    for definition in results:
        _check_results(definition, results[definition])
    for definition, workloads in results.items():
        yield _result(body, definition, workloads, context, where, stated)


def _check_results(definition: str, workloads: object) -> None:
    if not isinstance(workloads, dict) or not workloads:
        raise SourceFormatError(f"results.{definition[:60]}: expected an object of workloads")
    for uuid, one in workloads.items():
        place = f"results.{definition[:60]}.{uuid[:40]}"
        if not isinstance(one, dict):
            raise SourceFormatError(f"{place}: expected an object")
        try:
            text_of_field(one, "status", 40)
            check_performance(one)
        except SourceFormatError as error:
            raise SourceFormatError(f"{place}: {error.message}") from error


def _result(
    body: Mapping[str, Any],
    definition: str,
    workloads: Mapping[str, Mapping[str, Any]],
    context: Context,
    where: Provenance,
    stated: str | None,
) -> Draft:
    solution = next((body[one] for one in ("solution_name", "solution") if isinstance(body.get(one), str)), "")
    solution = solution or "the contestant's solution"
    device = devices.device_name(context.device) if context.device else None
    measured = [
        (uuid[:8], uuid, float(one["latency_ms"]) if one["status"] == "PASSED" and one.get("latency_ms") else None)
        for uuid, one in workloads.items()
    ]
    statuses = [str(one["status"]) for one in workloads.values()]
    pairs = [[uuid, latency] for _, uuid, latency in measured if latency is not None]
    facts = {
        **trace_facts(definition, solution, device, measured, statuses, where),
        "tags": ["trace", "contest", "flashinfer-trace", "unverified"],
    }
    kept = {**{name: value for name, value in body.items() if name != "results"}, "results": {definition: workloads}}
    return draft_of(
        f"technique/{TOPIC}/{slug('results', definition, solution if device else '', device or '')}",
        facts,
        trace_readme(definition, solution, device, measured, statuses),
        {"results.json": dump(kept)},
        where,
        stated,
        values=values_digest(pairs) if len(pairs) >= _FEWEST_ROWS else None,
        device=device,
    )


def summary_drafts(item: Item, context: Context) -> Iterator[Draft]:
    """Make a draft of a contestant's summary: its notes on retries and outliers; averages over workloads claim nothing.

    Raises:
        SourceFormatError: It has no runs.
    """
    del context
    raw = item.tree.read(item.path, limit=_MOST_BYTES)
    body = object_of(raw, depth=_DEPTH)
    definition, solution = text_of_field(body, "definition"), text_of_field(body, "solution_name")
    runs = body.get("runs")
    if not isinstance(runs, list) or not all(isinstance(one, dict) for one in runs):
        raise SourceFormatError("field runs: expected a list of runs")
    notes = [plain(str(one["note"]), 300) for one in runs if one.get("note")]
    facts = {
        "title": plain(f"Runs of {definition}", 80),
        "summary": plain(f"{len(runs)} runs of a contestant, with notes on retries and outliers; averages only", 160),
        "outcome": "works",
        "tags": ["contest", "notes", "flashinfer-trace", "unverified"],
        **_about(definition),
    }
    readme = "\n".join(
        [
            f"# Runs of {plain(definition, 200)}",
            "",
            f"{plain(solution, 200)}. Averages over workloads, on a device named in prose alone: no figure is claimed.",
            "Speed-up factors are against a plain reference in Python.",
            "",
            *(f"- {note}" for note in notes[:_MOST_NOTES]),
            "",
        ]
    )
    yield _whole(item, raw, slug("runs", definition, solution), facts, readme, "summary.json", body)


def registry_drafts(item: Item, context: Context) -> Iterator[Draft]:
    """Make a draft of a registry of signatures, or of a list of cases to measure at; it has no figures.

    Raises:
        SourceFormatError: It has neither.
    """
    del context
    raw = item.tree.read(item.path, limit=_MOST_BYTES)
    body = object_of(raw, depth=_DEPTH)
    name = text_of_field(body, "op" if "op" in body else "name")
    rows = body.get("workloads", body.get("cases"))
    if not isinstance(rows, list) or not rows or not all(isinstance(one, dict) for one in rows):
        raise SourceFormatError("expected a list of workloads or cases")
    kernels = sorted({str(one["impl"]) for one in rows if "impl" in one})
    what = f"signatures served by {', '.join(kernels)}" if kernels else "cases to measure at"
    facts = {
        "title": plain(f"Shapes of {name}", 80),
        "summary": plain(f"{len(rows)} exact {what}; a shape that is not listed takes another path", 160),
        "outcome": "works",
        "tags": ["shapes", "flashinfer", "unverified"],
        **_about(name),
    }
    said = body.get("_doc")
    doc = plain(" ".join(map(str, said)), 1500) if isinstance(said, list) else ""
    readme = f"# Shapes of {plain(name, 200)}\n\n{len(rows)} {what}; no figure.\n\n{doc}\n"
    yield _whole(item, raw, slug("shapes", name), facts, readme, "shapes.json", body)


def _about(name: str) -> dict[str, Any]:
    operator, relatives = meaning_of(name)
    about = [operator] if operator else list(relatives)
    return {"applies_to": about} if about else {}


def _whole(
    item: Item, raw: bytes, name: str, facts: Mapping[str, Any], readme: str, file: str, body: Mapping[str, Any]
) -> Draft:
    where = provenance_of(item.files[0], item.tree, raw)
    return draft_of(
        f"technique/{TOPIC}/{name}", facts, readme, {file: dump(body)}, where, of_file(item.tree, item.path)
    )


PARSERS: Mapping[str, Callable[[Item, Context], Iterator[Draft]]] = {
    "results": results_drafts,
    "summary": summary_drafts,
    "registry": registry_drafts,
}
"""By the kind that the importer recognised."""
