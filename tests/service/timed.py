"""Records with times that follow from samples, signed by a judge's key of the test: what no busy machine can give."""

import copy
import hashlib
from datetime import date
from typing import Any

from kb.config import Root, config_folder
from kb.models.record import canonical
from kb.service.validating import chain_head
from kb.store import files, records
from kb.store.records import Filed
from kb.validators import keys
from kb.validators.runtime import statistics
from tests.validators.runtime.test_statistics import raw as samples_of

H100: dict[str, Any] = {"name": "NVIDIA H100 80GB HBM3", "arch": "sm_90", "capability": "9.0", "sms": 132}
"""What a judge reads of an H100, in short."""


def file_timed(
    root: Root,
    entry_id: str,
    judged: dict[str, Any],
    *,
    gain: float,
    axes: dict[str, int] | None = None,
    device: dict[str, Any] | None = None,
    cost: tuple[int, int] = (1_000_000, 400_000),
    verdict: str = "accepted",
) -> Filed:
    """File a record in which the entry is ``gain`` times as fast as its baseline of about 100 µs.

    Args:
        root: The knowledge base.
        entry_id: Of a kernel that is there.
        judged: A genuine record of values.
        gain: Above 0.
        axes: Of the timed workload.
        device: Facts of the device; the genuine ones if None.
        cost: Operations and essential bytes of the workload.
        verdict: What the judge is to have said.
    """
    stored = files.read(root.entries / entry_id, entry_id)
    made = copy.deepcopy(judged)
    workload = {"axes": axes or {"num_tokens": 32, "hidden_size": 256}, "dtype": "float32", "law": "normal", "note": ""}
    result = samples_of(gain=gain, kind="cpu", workload=workload)  # type: ignore[arg-type]  # any field may change
    samples = {"schema": 1, "device": "cpu", "results": [result]}
    body = statistics.written(samples)
    made["entry"] |= {"id": entry_id, "version": stored.file.version, "digest": stored.digest}
    made["device"] = device or made["device"]
    made["timing"] = statistics.recompute(samples)
    made["roofline"] = [{"workload": workload, "flops": cost[0], "essential_bytes": cost[1]}]
    made["samples_sha256"] = hashlib.sha256(body).hexdigest()
    if verdict != "accepted":
        made["decision"] |= {"verdict": verdict, "reasons": ["wrong_values"]}
    key = keys.own_key(config_folder())
    with records.writing(root.entries):
        keys.enrol(root.entries, key, today=date(2026, 1, 1), note="a test")
        made["prev"] = chain_head(root.entries, key.id)
        made["judge"] = {**made["judge"], "key": key.id}
        made["signature"] = key.sign(canonical(made))
        return records.append(root.entries, made, samples=body)
