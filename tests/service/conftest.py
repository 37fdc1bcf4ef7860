"""Signed records to try evidence on: one real judgement, of which the facts that matter are changed and signed anew."""

import copy
import hashlib
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from kb.config import Root, config_folder
from kb.models.record import canonical
from kb.service.validating import chain_head, validate
from kb.store import files, layout, records
from kb.store.records import Filed
from kb.validators import keys

SILU = """schema = 1
version = {version}
title = "SiLU in double"
summary = "The formula, once, in float64."
outcome = "works"
operator = "silu"
language = "{language}"
entry_point = "kernel.py:run"
dtypes = ["float32"]
license = "Apache-2.0"
[requires]
arch = ["cpu", "sm_90"]
[limits]
hidden_size = {{ max = 300 }}
num_tokens = {{ max = 40 }}
[source]
origin = "written here"
"""

SILU_CODE = """import torch


def run(x):
    return (x.double() / (1 + torch.exp(-x.double()))).to(x.dtype)
"""

TIMING: dict[str, Any] = {
    "workload": {"axes": {"n": 4096}, "dtype": "float32", "law": "normal", "note": "decode"},
    "regime": {"cache": "cold", "launch": "eager"},
    "calls_per_batch": 64, "slots": 64, "blocks": [],
    "candidate_us": {"median": 10.0, "p10": 9.5, "p90": 11.0, "min": 9.0, "n": 150},
    "baseline_us": {"median": 15.0, "p10": 14.5, "p90": 16.0, "min": 14.0, "n": 150},
    "baseline": {"name": "torch.nn.functional.silu", "version": "torch 2.11.0+cu130", "source_sha256": "0" * 64},
    "ratio": 1.5, "interval": [1.45, 1.55], "noise": 0.01, "verdict": "FAST", "floor_us": 7.0, "roofline": 0.7,
    "bound": "memory", "clocks_agree": True, "quarantined": None, "confirms": False,
}  # fmt: skip

FileRecord = Callable[..., Filed]
WriteSilu = Callable[..., str]


@pytest.fixture
def write_silu() -> WriteSilu:
    """Return a function that writes a cheap entry that the judge accepts, and returns its id."""

    def write(root: Root, slug: str = "in-double", *, version: int = 1, language: str = "torch", code: str = "") -> str:
        folder = root.entries / "kernel" / "silu" / slug
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "entry.toml").write_text(SILU.format(version=version, language=language), encoding="utf-8")
        (folder / "README.md").write_text("# SiLU\n", encoding="utf-8")
        (folder / "kernel.py").write_text(SILU_CODE + code, encoding="utf-8")
        return f"kernel/silu/{slug}"

    return write


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return one record as the judge made it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KB_CONFIG_DIR", str(tmp_path_factory.mktemp("template")))
        root = Root(tmp_path_factory.mktemp("judged"))
        folder = root.entries / "kernel/silu/in-double"
        folder.mkdir(parents=True)
        (folder / "entry.toml").write_text(SILU.format(version=1, language="torch"), encoding="utf-8")
        (folder / "README.md").write_text("# SiLU\n", encoding="utf-8")
        (folder / "kernel.py").write_text(SILU_CODE, encoding="utf-8")
        (done,) = validate(root, ["kernel/silu/in-double"])
        assert done.verdict == "accepted", done
        name = Path(str(done.record)).name
        return records.read_one(root.entries, "kernel/silu/in-double", name).raw


@pytest.fixture
def file_record(judged: dict[str, Any]) -> FileRecord:
    """Return a function that files a signed record of an entry as it is now, with other facts."""

    def file(
        root: Root,
        entry_id: str,
        when: str = "2026-11-01T10:00:00Z",
        *,
        verdict: str = "accepted",
        device: Mapping[str, Any] | None = None,
        software: Mapping[str, str] | None = None,
        timing: list[dict[str, Any]] | None = None,
        **changes: object,
    ) -> Filed:
        stored = files.read(layout.folder_of(root.entries, entry_id), entry_id)
        raw = copy.deepcopy(judged)
        raw["created_utc"] = when
        raw["entry"] |= {
            "id": entry_id,
            "version": stored.file.version,
            "digest": stored.digest,
            "language": stored.file.language,
        }
        raw["device"] = dict(device) if device is not None else raw["device"]
        raw["software"] = dict(software) if software is not None else raw["software"]
        raw["timing"] = timing
        if verdict != "accepted":
            raw["decision"] |= {"verdict": verdict, "reasons": ["wrong_values"], "details": ["made so by a test"]}
        samples = b'{"by": "a test"}\n' if timing else None
        raw["samples_sha256"] = hashlib.sha256(samples).hexdigest() if samples is not None else None
        raw |= changes
        key = keys.own_key(config_folder())
        with records.writing(root.entries):
            keys.enrol(root.entries, key, today=date(2026, 1, 1), note="a test")
            raw["prev"] = chain_head(root.entries, key.id)
            raw["judge"] = {**raw["judge"], "key": key.id}
            raw["signature"] = key.sign(canonical(raw))
            return records.append(root.entries, raw, samples=samples)

    return file


@pytest.fixture
def timing() -> dict[str, Any]:
    """Return a timing that counts, to be changed at will."""
    return copy.deepcopy(TIMING)
