"""Evidence: what the judge said of one entry, as the plain values of a record without chain, key and signature.

``kb validate`` signs it at once; a bundle writes it where there is no ``kb``, and ``kb accept`` checks and signs it
later. Standard library only, apart from what the judge itself needs.
"""

import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kb.validators.operators.names import ALLOCATION, COMM, VALUES
from kb.validators.runtime import fingerprint
from kb.validators.runtime.report import Report

RULE = 1
"""Version of the rule that makes a verdict out of reasons."""

_KEPT = ("LD_LIBRARY_PATH", "OPENBLAS_CORETYPE", "CUDA_HOME", "CUDA_PATH")
"""What a worker inherits of the judge's environment, apart from where programs lie."""

_KNOWN = ("name", "arch", "uuid", "capability", "memory_bytes", "sms", "l2_bytes", "driver", "cuda_driver", "peaks")
"""Facts of a device that a record has fields for."""


def now_utc() -> str:
    """Return the time as records have it: ISO 8601, seconds, Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def evidence_of(
    report: Report,
    entry: Mapping[str, Any],
    *,
    began_utc: str,
    device: Mapping[str, Any],
    uses: Sequence[str],
    calls: Sequence[int],
) -> dict[str, Any]:
    """Make the evidence of one judgement.

    Args:
        report: What the judge said.
        entry: ``id``, ``version``, ``digest``, ``entry_point``, ``language`` of what was judged.
        began_utc: When judging began.
        device: What ``device_facts`` returned.
        uses: Which workloads were asked: ``awkward``, ``target``.
        calls: Least and most calls of one workload.

    Returns:
        All fields of a record but ``prev``, ``bundle`` and ``signature``; the judge's ``key`` is empty.
    """
    file = str(entry["entry_point"]).partition(":")[0]
    found = {
        "schema": 1,
        "created_utc": began_utc,
        "entry": {name: entry[name] for name in ("id", "version", "digest", "entry_point", "language")}
        | {"source_sha256": {file: report.source_sha256}},
        "operator": {
            "name": report.operator,
            "family": family(report.operator),
            "sha256": fingerprint.operator_sha256(report.operator),
        },
        "judge": {"key": "", "revision": fingerprint.JUDGE_REVISION, "sha256": fingerprint.runtime_sha256()},
        "master_seed": report.master_seed or "",
        "plan": {"uses": list(uses), "calls": list(calls)},
        "plan_sha256": report.plan_sha256 or "",
        "device": dict(device),
        "software": fingerprint.software(),
        "environment": {name: os.environ[name] for name in _KEPT if name in os.environ},
        "sandbox": report.sandbox,
        "blocked": report.blocked,
        "cases": [asdict(case) for case in report.cases],
        "findings": report.findings,
        "delegates": report.delegates,
        "ghosts": report.ghosts,
        "seconds": {name: float(value) for name, value in report.seconds.items()},
        "output": report.output,
        "decision": {
            "verdict": report.verdict, "reasons": report.reasons, "details": report.details, "rule": RULE,
        },
        "replay": f"kb validate {entry['id']} --device {'cpu' if device['arch'] == 'cpu' else 'cuda'}",
    }  # fmt: skip
    made: dict[str, Any] = plain(found | _measured(report))
    return made


def _measured(report: Report) -> dict[str, Any]:
    """Return the figures that a report holds; None for each that was not taken."""
    kernels = dict(report.kernels)
    determinism = kernels.pop("determinism", None)
    return {
        "kernels": kernels or None,
        "determinism": determinism or None,
        "sanitizer": dict(report.sanitizer) or None,
        "memory": _memory(report.memory),
        "comm": dict(report.comm) if report.comm else None,
        "model": dict(report.model) if report.model else None,
        "timing": None,
        "timing_notes": [],
        "telemetry": None,
        "roofline": None,
        "samples_sha256": None,
    }


def _memory(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not found:
        return None
    return {
        "allocator_peak_bytes": found.get("most_peak_bytes"),
        "outside_peak_bytes": found.get("most_outside_bytes"),
        "host_peak_bytes": found.get("most_host_bytes"),
        "figures": dict(found),
    }


def family(operator: str) -> str:
    """Return which oracle judges an operator: ``values``, ``allocation``, ``comm``, else ``model``."""
    for name, members in (("values", VALUES), ("allocation", ALLOCATION), ("comm", COMM)):
        if operator in members:
            return name
    return "model"


def plain(value: Any) -> Any:  # noqa: ANN401 - plain JSON in and out
    """Return a value as JSON has it: dicts, lists, texts, numbers; a number that is none becomes None."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def device_facts(device: str) -> dict[str, Any]:
    """Read what a record says of a device, and of the host that it is in.

    Args:
        device: ``cpu`` or ``cuda:N``.

    Returns:
        The fields of a record's ``device``; ``peaks`` only where they were measured.

    Raises:
        DriverError: There is no such GPU.
    """
    host = fingerprint.cpu() | {"boot_id": _read("/proc/sys/kernel/random/boot_id")}
    if device == "cpu":
        return host
    found = fingerprint.cuda(device)
    made: dict[str, Any] = {**host, "driver": _driver()}
    made |= {name: found[name] for name in _KNOWN if name in found}
    more = {name: value for name, value in found.items() if name not in _KNOWN and not isinstance(value, (dict, list))}
    return made | ({"more": more} if more else {})


def _driver() -> str | None:
    found = re.search(r"Kernel Module\D*?(\d+(?:\.\d+)+)", _read("/proc/driver/nvidia/version") or "")
    return found.group(1) if found else None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None
