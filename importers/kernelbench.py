"""KernelBench: how long its problems take in PyTorch on a device, and what became of kernels generated for them.

Milliseconds, warm caches, no version of anything inside. A baseline is a time of PyTorch, not of a kernel of ours; a
result's time is its author's. Neither carries a speed-up: the other side of it is plain PyTorch, at an unknown commit.

Source:
    ScalingIntelligence/KernelBench: ``results/timing`` and ``scripts/eval_from_generations.py``.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kb.errors import SourceFormatError
from kb.importers import devices
from kb.importers.base import Context, Draft, Folder, Item, Provenance, Skipped, provenance_of, values_digest
from kb.importers.flashinfer_entries import dump, plain
from kb.importers.license import of_file
from kb.importers.naming import slug
from kb.importers.reading import object_of

TOPIC = "kernelbench"
_BASELINE = re.compile(r"baseline_time_([\w.\-]{1,80})\.json")
_RESULT = (re.compile(rb'"compiled"\s*:'), re.compile(rb'"correctness"\s*:'))
_HEAD = 65_536
_DEPTH = 10
_LONGEST_MS = 3_600_000.0
_MOST_CLAIMS = 100
_FEWEST_ROWS = 4
_ROUNDING = 0.02
"""Figures are rounded to three digits, so a mean may seem to lie a little outside its extremes."""
_PART_BYTES = 700_000
_LONGEST_TEXT = 2000
"""Of one text in a sample's metadata: compilers' logs are long."""


class KernelBench:
    """Timings and results of KernelBench."""

    name = "kernelbench"
    summary = "KernelBench: timing baselines and results of generated kernels"

    def discover(self, folder: Folder) -> Iterable[Item]:
        """Claim timing files by their names, results by their fields."""
        for file in folder.files:
            if not file.name.endswith(".json"):
                continue
            found = _BASELINE.fullmatch(file.name)
            if found is not None:
                yield Item(folder.tree, (file,), extra={"mode": found.group(1)})
            elif all(field.search(folder.tree.head(file.path, _HEAD)) for field in _RESULT):
                yield Item(folder.tree, (file,))

    def parse(self, item: Item, context: Context) -> Iterator[Draft | Skipped]:
        """Make a draft of each level and device of a timing file, or of each device of a file of results.

        Raises:
            SourceFormatError: It is truncated or hostile, or its figures cannot be milliseconds.
        """
        raw = item.tree.read(item.path)
        body = object_of(raw, depth=_DEPTH)
        where = provenance_of(item.files[0], item.tree, raw)
        stated = of_file(item.tree, item.path, raw)
        if "mode" in item.extra:
            for one in _baselines(item.extra["mode"], body, where, stated):
                yield replace(one, path=f"{item.path}{one.path}") if isinstance(one, Skipped) else one
        else:
            yield from _results(body, context, where, stated)


def _milliseconds(place: str, value: object, *, least: float = 0.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= _LONGEST_MS:
        raise SourceFormatError(f"{place}: expected milliseconds, 0 to an hour, found {value!r:.40}")
    return float(value)


def _timing(place: str, one: object) -> float | None:
    """Return the mean of a problem in milliseconds; None where it failed."""
    if one is None:
        return None
    if not isinstance(one, dict):
        raise SourceFormatError(f"{place}: expected an object or null, found {type(one).__name__}")
    if one.get("mean") is None:
        return None
    mean = _milliseconds(f"{place}.mean", one["mean"])
    low, high = (_milliseconds(f"{place}.{name}", one.get(name, mean)) for name in ("min", "max"))
    if not low * (1 - _ROUNDING) <= mean <= high * (1 + _ROUNDING):
        raise SourceFormatError(f"{place}: mean {mean:g} lies outside {low:g} to {high:g}: the unit is not sure")
    _milliseconds(f"{place}.std", one.get("std", 0.0))
    return mean if mean > 0 else None


def _baselines(mode: str, body: Mapping[str, Any], where: Provenance, stated: str | None) -> Iterator[Draft | Skipped]:
    made: list[Draft | Skipped] = []
    for level, problems in body.items():
        if not isinstance(problems, dict):
            raise SourceFormatError(f"{level[:60]}: expected an object of problems")
        groups: dict[str, dict[str, Any]] = defaultdict(dict)
        means: dict[str, float] = {}
        for problem, one in problems.items():
            mean = _timing(f"{level[:40]}.{problem[:80]}", one)
            hardware = one.get("hardware") if isinstance(one, dict) else None
            groups[hardware if isinstance(hardware, str) else ""][problem] = one
            if mean is not None:
                means[problem] = mean
        named = [one for one in groups if one]
        if len(named) == 1 and not any(problem in means for problem in groups.get("", ())):
            groups[named[0]].update(groups.pop("", {}))  # what failed names no device
        for hardware, group in groups.items():
            timed = {name: means[name] for name in group if name in means}
            if hardware and timed:
                made.append(_baseline(mode, level, hardware, group, timed, where, stated))
            else:
                reason = "its problems failed: no times" if hardware or not timed else "its times name no device"
                made.append(Skipped(f"#{level[:60]}", f"{len(group)} problems: {reason}", refused=bool(timed)))
    yield from made


def _backend(mode: str) -> str:
    if mode == "torch":
        return "PyTorch, eager"
    return f"PyTorch, {mode.removeprefix('torch_').replace('_', ' ')}"


def _claim(metric_of: str, device: str, workload: str, milliseconds: float, where: Provenance) -> dict[str, Any]:
    return {
        "metric": "latency_us",
        "value": round(milliseconds * 1000, 6),
        "unit": "us",
        "better": "lower",
        "device": plain(device, 80),
        "workload": plain(workload, 160),
        "backend": plain(metric_of, 120),
        "source": plain(f"{where.repository} {where.path}", 160),
    }


def _baseline(
    mode: str,
    level: str,
    hardware: str,
    group: Mapping[str, Any],
    timed: Mapping[str, float],
    where: Provenance,
    stated: str | None,
) -> Draft:
    device = devices.device_name(hardware)
    site = where.path.split("/")[-2] if "/" in where.path else ""
    claims = [_claim(_backend(mode), device, f"{level} {name}", mean, where) for name, mean in timed.items()]
    failed = len(group) - len(timed)
    facts = {
        "title": plain(f"KernelBench {level}, {mode}, {devices.short_device(device)}", 80),
        "summary": plain(f"Times of {len(timed)} problems in {_backend(mode)}: a baseline, no kernel", 160),
        "outcome": "works",
        "tags": ["kernelbench", "baseline", "unverified"],
        "claims": claims[:_MOST_CLAIMS],
    }
    readme = "\n".join(
        [
            f"# KernelBench {plain(level, 60)} on {plain(device, 80)}",
            "",
            f"{_backend(mode)}: {len(timed)} problems timed, {failed} without a time; milliseconds in `baseline.json`,",
            f"microseconds in the claims{f' (the first {_MOST_CLAIMS})' if len(claims) > _MOST_CLAIMS else ''}.",
            "Mean of the source's trials, caches warm: small problems are flattered on devices with large caches.",
            "The source states no version of PyTorch, CUDA or driver, and problems changed between its commits, so a",
            "time belongs to the commit that this one is from.",
            "",
        ]
    )
    values = values_digest(timed) if len(timed) >= _FEWEST_ROWS else None
    return Draft(
        f"technique/{TOPIC}/{slug('baseline', device, mode, level, site)}",
        facts,
        readme,
        {"baseline.json": dump({level: group})},
        where,
        stated,
        values=values,
        device=device,
    )


def _samples(body: object, trail: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """Yield samples with the keys that lead to them: problem, or level and problem, or these and the sample."""
    if isinstance(body, list):
        for one in body:
            yield from _samples(one, trail)
        return
    if not isinstance(body, dict) or len(trail) > 3:
        raise SourceFormatError(f"{'.'.join(trail)[:80] or 'the file'}: expected results of problems")
    if "compiled" not in body:
        for key, one in body.items():
            yield from _samples(one, (*trail, key[:80]))
        return
    place = ".".join(trail)
    for name in ("compiled", "correctness"):
        if not isinstance(body.get(name), bool):
            raise SourceFormatError(f"{place}.{name}: expected true or false, found {body.get(name)!r:.40}")
    runtime = body.get("runtime", -1)
    if runtime not in (None, -1):  # the format's word for "not measured"
        _milliseconds(f"{place}.runtime", runtime)
    metadata = body.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise SourceFormatError(f"{place}.metadata: expected an object")
    yield {"problem": list(trail), **body, "metadata": _clipped(metadata)}


def _clipped(value: Any) -> Any:  # noqa: ANN401 - plain JSON
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}… ({len(value):,} characters)"
    if isinstance(value, dict):
        return {key: _clipped(one) for key, one in value.items()}
    return [_clipped(one) for one in value] if isinstance(value, list) else value


def _results(
    body: Mapping[str, Any], context: Context, where: Provenance, stated: str | None
) -> Iterator[Draft | Skipped]:
    groups: dict[str | None, list[dict[str, Any]]] = defaultdict(list)
    for one in list(_samples(body)):
        hardware = one["metadata"].get("hardware")
        named = devices.device_name(hardware) if isinstance(hardware, str) and hardware else context.device
        groups[named].append(one)
    if not groups:
        raise SourceFormatError("expected at least one result, found none")
    for device, samples in groups.items():
        for number, part in enumerate(_parts(samples), start=1):
            yield _result(device, part, number, where, stated)


def _parts(samples: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    part: list[dict[str, Any]] = []
    size = 0
    for one in samples:
        length = 2 * len(dump(one))
        if part and size + length > _PART_BYTES:
            yield part
            part, size = [], 0
        part.append(one)
        size += length
    yield part


def _result(
    device: str | None, samples: Sequence[dict[str, Any]], number: int, where: Provenance, stated: str | None
) -> Draft:
    right = [one for one in samples if one["compiled"] and one["correctness"]]
    run = where.path.split("/")[-2] if "/" in where.path else "run"
    timed = {
        f"problem {'.'.join(one['problem'])} sample {one.get('sample_id', 0)}": float(one["runtime"])
        for one in right
        if isinstance(one.get("runtime"), int | float) and one["runtime"] > 0
    }
    claims = [_claim(f"run {run}", device, name, mean, where) for name, mean in timed.items()] if device else []
    said = f"{len(right)} of {len(samples)} generated kernels were right, by the source's own check"
    facts: dict[str, Any] = {
        "title": plain(f"KernelBench results of {run}", 80),
        "summary": plain(f"{said}; no code", 160),
        "outcome": "works" if right else "incorrect",
        "tags": ["kernelbench", "results", "unverified"],
        **({"claims": claims[:_MOST_CLAIMS]} if claims else {}),
    }
    if not right:
        built = sum(one["compiled"] for one in samples)
        facts["negative"] = {
            "hypothesis": f"run {plain(run, 100)} writes kernels for KernelBench that are right",
            "condition": plain(f"on {device or 'a device that the source does not name'}", 200),
            "effect": f"none of {len(samples)} was right; {built} of them compiled",
        }
    readme = "\n".join(
        [
            f"# KernelBench results of {plain(run, 100)}",
            "",
            f"{said}, on {device or 'a device that the source does not name (--device)'}.",
            "Times are its own, warm, against nothing: the format compares with plain PyTorch, which is no kernel to",
            "beat, so no speed-up is stated. The kernels' code is in other files.",
            "",
        ]
    )
    name = slug("results", run, device or "no-device", f"part-{number}" if number > 1 else "")
    values = values_digest(timed) if len(timed) >= _FEWEST_ROWS else None
    return Draft(
        f"technique/{TOPIC}/{name}",
        facts,
        readme,
        {"results.json": dump(list(samples))},
        where,
        stated,
        values=values,
        device=device,
    )


IMPORTER = KernelBench()
