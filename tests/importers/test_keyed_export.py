"""A tuned file whose name does not tell whose it is comes back as the same project's."""

import json
from pathlib import Path

import pytest

from kb.config import Root, find_root
from kb.errors import EntryNotFoundError, SourceFormatError
from kb.importers.keyed_layout import runtime_files
from kb.service import exporting, importing
from kb.service.initialising import init
from kb.store import files, layout

STARTER = Root(Path(__file__).resolve().parents[2])
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


def test_the_starter_s_own_configs_go_out_in_the_layout_that_the_runtimes_read(tmp_path: Path) -> None:
    written = 0
    for form in ("vllm-fused-moe", "sglang-fused-moe", "vllm-block-gemm", "sglang-block-gemm"):
        made = exporting.export(STARTER, form, [], tmp_path / form)
        assert not made.left_out
        for path in made.files:
            rows = json.loads((tmp_path / form / path).read_text(encoding="utf-8"))
            assert all(int(size) > 0 and row["BLOCK_SIZE_M"] > 0 for size, row in rows.items()), path
            written += 1
    assert written >= 8
    again = _imported(tmp_path / "kb", tmp_path / "vllm-fused-moe", None)
    assert len(again) == len(list((tmp_path / "vllm-fused-moe").rglob("*.json")))


@pytest.mark.parametrize(
    "parameters",
    [[], [{"BLOCK_SIZE_M": 1}], [{"num_tokens": 1}, {"num_tokens": 1}], {"up": []}, "x", [[1]], [{"num_tokens": "1"}]],
)
def test_rows_that_no_runtime_could_read_are_not_written(parameters: object) -> None:
    body = json.dumps({"selected_by": "num_tokens", "parameters": parameters}).encode()
    with pytest.raises(SourceFormatError, match="parameters: expected"):
        runtime_files({"config.json": body})


def test_an_entry_that_is_not_there_is_said_with_its_nearest(tmp_path: Path) -> None:
    with pytest.raises(EntryNotFoundError, match="no entry has the id") as caught:
        exporting.export(STARTER, "vllm-fused-moe", ["kernel/rmsnorm/row-per-ct"], tmp_path / "out")
    assert "kernel/rmsnorm/row-per-cta" in str(caught.value.hint)
    assert not (tmp_path / "out").exists()
