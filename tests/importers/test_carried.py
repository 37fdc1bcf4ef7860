"""What goes out comes in again without a word about its license, with its origin, and with the same digests."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kb.config import Root, find_root
from kb.importers.base import Exported
from kb.importers.carried import Carried, manifest_of, row_of, stated_in, with_notice
from kb.importers.tree import MANIFEST
from kb.service import exporting, importing
from kb.service.initialising import init
from kb.store import files, layout

ROOT = Path(__file__).parents[2]
TUNED = Path(__file__).parent / "data" / "tuned"
PROGRAM: dict[str, Any] = {"id": "a1", "code": "def run(x):\n    return x\n", "language": "python", "metrics": {}}


def _import(home: Path, source: Path, form: str | None = None, license_: str | None = None) -> importing.Report:
    if not home.exists():
        init(home)
    stated = ("some/where" if license_ else None, "c0ffee" if license_ else None, license_)
    options = importing.options_of(format_=form, write=True, stated=stated, allow=[], device=None, toolchain=[])
    return importing.run(find_root(str(home)), str(source), options)


def _filed(home: Path) -> dict[str, tuple[str, str, dict[str, Any]]]:
    root: Root = find_root(str(home))
    found = {}
    for one in layout.entry_ids(root.entries):
        stored = files.read(layout.folder_of(root.entries, one), one)
        source = {key: value for key, value in stored.file.source.model_dump().items() if key != "sha256"}
        found[one] = (stored.digest, stored.file.license, source)
    return found


def _checkpoint(place: Path) -> Path:
    folder = place / "run" / "checkpoint_1"
    (folder / "programs").mkdir(parents=True)
    (folder / "programs" / "a1.json").write_text(json.dumps(PROGRAM))
    (folder / "metadata.json").write_text(json.dumps({"islands": [["a1"]], "last_iteration": 1}))
    return place / "run"


@pytest.mark.parametrize(
    ("form", "part"),
    [
        ("vllm-fused-moe", "vllm_fused_moe"),
        ("sglang-fused-moe", "sglang_fused_moe"),
        ("sglang-lora", "sglang_other"),
        ("hf-kernels", "hf_kernels"),
        ("flashinfer-trace", "flashinfer_trace"),
        ("openevolve", None),
    ],
)
def test_what_was_taken_under_a_stated_license_goes_out_and_comes_back_with_it(
    tmp_path: Path, form: str, part: str | None
) -> None:
    source = _checkpoint(tmp_path)
    if part is not None:
        source = Path(shutil.copytree(TUNED / part, tmp_path / "in" / part)).parent
    _import(tmp_path / "one", source, form, "BSD-3-Clause")
    first = _filed(tmp_path / "one")
    assert first
    exporting.export(find_root(str(tmp_path / "one")), form, [], tmp_path / "out")
    report = _import(tmp_path / "two", tmp_path / "out", form)
    assert not report.counts["refused"]
    assert _filed(tmp_path / "two") == first
    again = _import(tmp_path / "one", tmp_path / "out", form)  # to where it came from
    assert set(again.counts) == {"unchanged", "left"}


@pytest.mark.parametrize("form", ["flashinfer-trace", "openevolve", "hf-kernels"])
def test_kernels_of_ours_come_in_under_their_own_license_and_stay_the_same_from_then_on(
    tmp_path: Path, form: str
) -> None:
    ids = ["kernel/rmsnorm/row-per-cta", "kernel/rmsnorm/multi-row-per-cta"]
    exporting.export(find_root(str(ROOT)), form, ids, tmp_path / "out")
    everything = _import(tmp_path / "all", tmp_path / "out")
    assert not everything.counts["refused"]
    report = _import(tmp_path / "one", tmp_path / "out", form if form == "hf-kernels" else None)
    assert not report.counts["duplicate"]
    first = _filed(tmp_path / "one")
    assert {license_ for _, license_, _ in first.values()} == {"Apache-2.0"}
    exporting.export(find_root(str(tmp_path / "one")), form, [], tmp_path / "again")
    _import(tmp_path / "two", tmp_path / "again")
    assert _filed(tmp_path / "two") == first


def test_a_single_file_of_ours_says_its_license_itself(tmp_path: Path) -> None:
    exporting.export(find_root(str(ROOT)), "flashinfer-trace", ["kernel/rmsnorm/row-per-cta"], tmp_path / "out")
    exporting.export(find_root(str(ROOT)), "openevolve", ["kernel/rmsnorm/row-per-cta"], tmp_path / "programs")
    places = [
        next((tmp_path / "out/definitions").rglob("*.json")),
        next((tmp_path / "out/solutions").rglob("*.json")),
        next((tmp_path / "programs").rglob("programs/*.json")),
    ]
    for number, place in enumerate(places):
        folder = tmp_path / f"alone{number}" / place.parent.name
        folder.mkdir(parents=True)
        shutil.copy(place, folder)
        if place.parent.name == "programs":
            (folder.parent / "metadata.json").write_text('{"islands": []}')
        _import(tmp_path / f"home{number}", folder.parent)
        assert [one[1] for one in _filed(tmp_path / f"home{number}").values()][-1] == "Apache-2.0"
    source = next((tmp_path / "programs").rglob("initial/*.py")).read_text()
    assert "SPDX-License-Identifier: Apache-2.0" in source


def test_a_file_that_was_changed_after_the_export_is_refused(tmp_path: Path) -> None:
    _import(tmp_path / "one", TUNED / "vllm_fused_moe", "vllm-fused-moe", "MIT")
    made = exporting.export(find_root(str(tmp_path / "one")), "vllm-fused-moe", [], tmp_path / "out")
    changed = made.files[0]
    (tmp_path / "out" / changed).write_text('{"1": {"BLOCK_SIZE_M": 32}}')
    report = _import(tmp_path / "two", tmp_path / "out")
    assert [line.reason for line in report.lines if line.state == "refused"] == [
        f"its digest is not the one that {MANIFEST} states"
    ]


@pytest.mark.parametrize(
    ("tags", "texts", "found"),
    [
        (["license:Apache-2.0"], [], "Apache-2.0"),
        (["license:apache 2.0", 3, None], [], "Apache-2.0"),
        (["license:"], ["no license"], None),
        ("license:MIT", [None, 3], None),
        (None, ["# SPDX-License-Identifier: MIT\n", "// SPDX-License-Identifier: MIT. Enjoy"], "MIT"),
        (["license:MIT"], ["# SPDX-License-Identifier: Apache-2.0\n"], "MIT AND Apache-2.0"),
        (None, ["SPDX-License-Identifier: MIT OR Apache-2.0", "SPDX-License-Identifier: MIT"], None),
        (["license:Research Reciprocity 1.0"], [], "LicenseRef-Research-Reciprocity"),
        (["license:<script>"], [], None),
    ],
)
def test_tags_and_texts_name_a_license_only_where_it_is_one(tags: object, texts: list[object], found: str) -> None:
    assert stated_in(tags, texts) == found


def test_a_notice_is_added_once_and_only_where_comments_are_known() -> None:
    noticed = with_notice("x = 1\n", "MIT", "py")
    assert noticed == "# SPDX-License-Identifier: MIT\nx = 1\n"
    assert with_notice(noticed, "Apache-2.0", "py") == noticed
    assert with_notice("x", "MIT", "unknown") == "x"


def test_the_manifest_says_nothing_of_an_origin_that_nobody_knows() -> None:
    row = row_of(Exported("a.json", b"{}", "kernel/a/b"), Carried("MIT", {"note": "measured"}))
    assert set(row) == {"file", "license", "saved_sha256"}
    assert manifest_of([{"file": "b"}, {"file": "a"}]).body == b'{"file": "a"}\n{"file": "b"}\n'
