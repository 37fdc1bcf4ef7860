"""HF kernels: build files, metadata and lock files come in and go out byte for byte."""

import json
from pathlib import Path
from typing import Any

import pytest

from kb.config import find_root
from kb.service import exporting, importing
from kb.service.initialising import init
from kb.store import files, layout

BUILD = '[general]\nname = "scale"\nlicense = "MIT"\n\n[kernel.scale]\nbackend = "cuda"\nsrc = ["scale.cu"]\n'
METADATA: dict[str, Any] = {
    "name": "scale",
    "id": "_scale_cuda_1234567",
    "version": 2,
    "license": "apache-2.0",
    "python-depends": [],
    "backend": {"type": "cuda", "archs": ["9.0a", "10.0a"]},
    "digest": {"algorithm": "sha256", "files": {"__init__.py": "Zi5U"}},
}
LOCK = [
    {"repo_id": "some/scale", "sha": "a" * 40, "variants": {"torch210-cpu": {"hash": "sha256-1", "hash_type": "x"}}}
]


def imported(home: Path, source: Path) -> tuple[dict[str, files.StoredEntry], importing.Report]:
    init(home)
    root = find_root(str(home))
    options = importing.options_of(
        format_="hf-kernels",
        write=True,
        stated=("some/where", None, "BSD-3-Clause"),
        allow=[],
        device=None,
        toolchain=[],
    )
    report = importing.run(root, str(source), options)
    ids = list(layout.entry_ids(root.entries))
    return {one: files.read(layout.folder_of(root.entries, one), one) for one in ids}, report


def put(folder: Path, bodies: dict[str, str]) -> Path:
    for name, body in bodies.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(body, encoding="utf-8")
    return folder


def test_all_three_come_back_with_the_same_bytes_and_digests(tmp_path: Path) -> None:
    bodies = {
        "scale/build.toml": BUILD,
        "scale/build/torch213-cxx11-cu130-x86_64-linux/metadata.json": json.dumps(METADATA, indent=1),
        "kernels.lock": json.dumps(LOCK),
        "builder/build-variants.json": "{}",
    }
    first, report = imported(tmp_path / "one", put(tmp_path / "in", bodies))
    assert {one.file.license for one in first.values()} == {"MIT", "Apache-2.0", "BSD-3-Clause"}
    assert "10.0a" in next(one.file.summary for name, one in first.items() if "metadata" in name)
    assert [line.state for line in report.lines if "builder" in line.path] == ["left"]
    made = exporting.export(find_root(str(tmp_path / "one")), "hf-kernels", [], tmp_path / "out")
    written = {one.rsplit("/", 1)[-1]: (tmp_path / "out" / one).read_text(encoding="utf-8") for one in made.files}
    assert written == {path.rsplit("/", 1)[-1]: body for path, body in bodies.items() if "builder" not in path}
    again, _ = imported(tmp_path / "two", tmp_path / "out")
    assert sorted(one.digest for one in again.values()) == sorted(one.digest for one in first.values())


@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        ("metadata.json", json.dumps(METADATA)[:-4], "expected JSON"),
        ("metadata.json", json.dumps(METADATA).replace('"version": 2', '"version": NaN'), "NaN"),
        ("metadata.json", json.dumps(METADATA).replace('"version": 2', '"version": 1e400'), "1e400"),
        ("metadata.json", json.dumps(METADATA).replace('"version": 2', '"version": 2, "version": 3'), "distinct keys"),
        ("metadata.json", json.dumps({**METADATA, "backend": {"type": "abacus"}}), "field backend.type"),
        ("metadata.json", json.dumps({**METADATA, "version": -1}), "whole number"),
        ("metadata.json", json.dumps({**METADATA, "more": json.loads("[" * 40 + "]" * 40)}), "levels of nesting"),
        ("kernels.lock", json.dumps([{**LOCK[0], "sha": "main"}]), "kernel 0"),
        ("kernels.lock", "{}", "list of locked kernels"),
    ],
    ids=["cut", "nan", "1e400", "twice", "backend", "version", "deep", "sha", "object"],
)
def test_hostile_files_are_refused_with_a_reason(tmp_path: Path, name: str, body: str, reason: str) -> None:
    found, report = imported(tmp_path / "kb", put(tmp_path / "in", {name: body}))
    assert found == {}
    assert reason in (report.lines[0].reason or "")
