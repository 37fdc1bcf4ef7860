"""A tuned file whose name does not tell whose it is comes back as the same project's."""

import json
from pathlib import Path

import pytest

from kb.config import find_root
from kb.service import exporting, importing
from kb.service.initialising import init
from kb.store import files, layout

ROWS = {"1": {"BLOCK_SIZE_M": 16, "num_warps": 4, "num_stages": 3}, "64": {"BLOCK_SIZE_M": 64, "num_warps": 8}}
NAME = "N=6144,K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.json"


def _imported(home: Path, source: Path, form: str | None) -> dict[str, str]:
    init(home)
    root = find_root(str(home))
    options = importing.options_of(
        format_=form, write=True, stated=("some/where", None, "MIT"), allow=[], device=None, toolchain=[]
    )
    importing.run(root, str(source), options)
    return {one: files.read(layout.folder_of(root.entries, one), one).digest for one in layout.entry_ids(root.entries)}


@pytest.mark.parametrize("project", ["sglang", "vllm"])
def test_a_name_that_two_projects_have_goes_out_below_its_own(tmp_path: Path, project: str) -> None:
    place = tmp_path / "in" / project / "configs"
    place.mkdir(parents=True)
    (place / NAME).write_text(json.dumps(ROWS), encoding="utf-8")
    first = _imported(tmp_path / "one", tmp_path / "in", None)
    assert [one.split("/")[-1].split("-")[0] for one in first] == [project]
    exporting.export(find_root(str(tmp_path / "one")), f"{project}-block-gemm", [], tmp_path / "out")
    assert _imported(tmp_path / "two", tmp_path / "out", None) == first
