"""Make bundles: entries, the judge and a one-time key in one file that runs where there is no kb."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kb import hardware
from kb.config import Root
from kb.errors import ConfigError, ValidatorError
from kb.service import bundle_order, ceilings, jobs, orders
from kb.service.validating import chosen_ids
from kb.store import files, layout
from kb.store.files import StoredEntry

QUICK_REGIMES = ("cold/eager", "cold/graph")

DAYS = 14.0
"""How long the evidence of a bundle is accepted."""


@dataclass(frozen=True)
class Left:
    """One entry that is not in the bundle, and why."""

    id: str
    why: str


@dataclass(frozen=True)
class Bundled:
    """What was made."""

    file: str
    size_bytes: int
    job: str
    expires_utc: str
    entries: tuple[str, ...]
    left_out: tuple[Left, ...]


def bundle(
    root: Root,
    ids: Sequence[str],
    output: Path,
    *,
    device_kind: str = "cuda",
    kind: str | None = None,
    uses: Sequence[str] | None = None,
    timing: bool = False,
    quick: bool = False,
    shapes: int = 1,
    regimes: Sequence[str] | None = None,
    days: float = DAYS,
) -> Bundled:
    """Make a bundle and keep its key.

    Args:
        root: The knowledge base.
        ids: Entry ids, in the order in which they are judged; none means all entries with code, those that matter most
            to the targets first.
        output: Where to write it; never over a file that is there.
        device_kind: ``cuda`` or ``cpu``.
        kind: Only entries of this kind: ``kernel``, ``allocation`` or ``comm``.
        uses: ``awkward``, ``target`` or both; None for what is usual on the device.
        timing: Take times too.
        quick: Times of one workload an entry, cold, eager and by graph replay, without a second run that confirms.
        shapes: How many workloads of targets a quick timing times; with two or more an awkward one too.
        regimes: ``cold/eager``, ``cold/graph``, ``warm/eager``, ``warm/graph``; None for the usual ones.
        days: How long its evidence is accepted.

    Returns:
        What is in it, and what is not.

    Raises:
        ConfigError: The file is there or cannot be written.
        EntryNotFoundError: An id is not in the knowledge base.
        ValidatorError: No entry is left, or torch, which workloads need, is missing.
    """
    if device_kind not in ("cuda", "cpu"):
        raise ConfigError(f"expected a device kind of cuda or cpu, found {device_kind!r}", hint="kb bundle --help")
    _usable(uses)
    asked = QUICK_REGIMES if quick and regimes is None else regimes
    pairs = None if asked is None else [_regime(one) for one in asked]
    named = [one for one in chosen_ids(root, ids) if kind is None or one.startswith(f"{kind}/")]
    if not named:
        raise ConfigError(f"no entry of kind {kind} to bundle", hint="--kind kernel, allocation or comm")
    wanted = tuple(uses or orders.uses_on(device_kind))
    rows: list[dict[str, Any]] = []
    candidates: dict[str, bytes] = {}
    left: list[Left] = []
    for entry_id in named:
        stored = files.read(layout.folder_of(root.entries, entry_id), entry_id)
        row, why = _row(stored, device_kind, wanted, timing=timing, quick=quick, shapes=shapes, regimes=pairs)
        if row is None:
            left.append(Left(entry_id, why))
            continue
        row["file"] = f"candidates/{len(rows)}/candidate.py"
        candidates[row["file"]] = orders.source_of(stored)
        rows.append(row)
    rows = rows if ids else bundle_order.in_order(rows, bundle_order.shares(root))
    if not rows:
        raise ValidatorError(f"nothing to bundle: {left[0].id}: {left[0].why}", hint="kb list; --device-kind")
    made = _write(output, rows, candidates, device_kind=device_kind, timing=timing, days=days)
    ran = tuple(f"{row['id']}@{row['version']}" for row in rows)
    return Bundled(str(output), output.stat().st_size, made["job"], made["expires_utc"], ran, tuple(left))


def _usable(uses: Sequence[str] | None) -> None:
    for one in uses or ():
        if one not in orders.USES:
            raise ConfigError(f"expected workloads of {', '.join(orders.USES)}, found {one!r}", hint="kb bundle --help")


def _regime(text: str) -> list[str]:
    cache, _, launch = text.strip().partition("/")
    if cache not in ("cold", "warm") or launch not in ("eager", "graph"):
        raise ConfigError(f"expected a regime such as cold/eager, found {text!r}", hint="kb bundle --help")
    return [cache, launch]


def _row(
    stored: StoredEntry,
    device_kind: str,
    uses: Sequence[str],
    *,
    timing: bool,
    quick: bool,
    shapes: int,
    regimes: list[list[str]] | None,
) -> tuple[dict[str, Any] | None, str]:
    """Return what a bundle holds of an entry, or why it holds nothing."""
    reason = orders.not_judged(stored)
    if reason is not None:
        return None, reason
    arches = ["cpu"] if device_kind == "cpu" else sorted(one for one in hardware.architectures() if one != "cpu")
    runs_on = {arch: orders.not_on(stored, arch) for arch in arches}
    if all(runs_on.values()):
        return None, str(runs_on[arches[0]])
    try:
        order = orders.order_of(
            stored,
            uses=uses,
            timed_on=device_kind if timing else None,
            regimes=regimes,
            quick=quick,
            shapes=shapes,
        )
    except ValidatorError as error:
        return None, error.message
    return {**order, "runs_on": runs_on}, ""


def _write(
    output: Path,
    rows: list[dict[str, Any]],
    candidates: dict[str, bytes],
    *,
    device_kind: str,
    timing: bool,
    days: float,
) -> dict[str, Any]:
    from kb.validators import bundle as packing
    from kb.validators.runtime import fingerprint

    if output.exists():
        raise ConfigError(f"{output} is there already", hint="remove it, or give another -o")
    new = jobs.fresh()
    made, expires = jobs.times(days)
    judge = fingerprint.runtime_sha256()
    body = packing.pack(
        {"job": new.job, "device_kind": device_kind, "ceilings": ceilings.by_device(), "entries": rows},
        candidates,
        new.key,
    )
    kept = {
        "schema": 1,
        "job": new.job,
        "key": new.key.hex(),
        "made_utc": made,
        "expires_utc": expires,
        "device_kind": device_kind,
        "timing": timing,
        "judge_revision": fingerprint.JUDGE_REVISION,
        "judge_sha256": judge,
        "entries": [_kept(row, candidates[row["file"]]) for row in rows],
    }
    if fingerprint.runtime_sha256() != judge:
        raise ConfigError("the judge's own files changed while they were packed", hint="try again")
    jobs.save(kept)
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(body)
    except OSError as error:
        raise ConfigError(f"cannot write {output}: {error.strerror}", hint="give another -o") from error
    return kept


def _kept(row: dict[str, Any], source: bytes) -> dict[str, Any]:

    from kb.validators import baselines
    from kb.validators.runtime import fingerprint

    name = str(row["entry_point"]).partition(":")[0]
    return {key: value for key, value in row.items() if key not in ("file", "runs_on")} | {
        "operator_sha256": fingerprint.operator_sha256(row["operator"]),
        "source_sha256": {name: hashlib.sha256(source).hexdigest()},
        "baselines": [hashlib.sha256(one.source).hexdigest() for one in baselines.baselines(row["operator"])],
    }
