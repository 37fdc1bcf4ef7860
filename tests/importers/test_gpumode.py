"""GPU MODE: sets of problems come in, and a problem's dtypes come from the code beside it."""

from pathlib import Path

import pytest

from kb.config import find_root
from kb.service import importing
from kb.service.initialising import init
from kb.store import files, layout

SET = "name: Some problems\nproblems:\n  - directory: a/scale\n    name: scale\n    gpus:\n      - B200\n"
TASK = 'description: |\n  Scales are float8_e4m3fnuz.\ntests:\n  - {"m": 8}\n'
CODE = """
import torch

def generate_input(m: int, seed: int):
    return torch.rand(m).to(torch.bfloat16), torch.ones(m, dtype=torch.float8_e4m3fn)

def check(data, output):
    return output.to(torch.float64)
"""


def imported(tmp_path: Path, **bodies: str) -> tuple[list[files.StoredEntry], importing.Report]:
    folder = tmp_path / "in/a/scale"
    folder.mkdir(parents=True)
    for name, body in bodies.items():
        (folder / name.replace("_dot_", ".")).write_text(body, encoding="utf-8")
    init(tmp_path / "kb")
    root = find_root(str(tmp_path / "kb"))
    options = importing.options_of(
        format_="gpumode", write=True, stated=("some/where", None, "MIT"), allow=[], device=None, toolchain=[]
    )
    report = importing.run(root, str(tmp_path / "in"), options)
    return [files.read(layout.folder_of(root.entries, one), one) for one in layout.entry_ids(root.entries)], report


def test_dtypes_are_those_that_the_code_draws_and_never_those_of_the_prose(tmp_path: Path) -> None:
    (found,), _ = imported(tmp_path, task_dot_yml=TASK, reference_dot_py=CODE)
    assert found.file.dtypes == ["bfloat16", "float8_e4m3fn"]


def test_without_readable_code_there_is_no_dtype(tmp_path: Path) -> None:
    (found,), _ = imported(tmp_path, task_dot_yml=TASK, reference_dot_py="def generate_input(:\n")
    assert found.file.dtypes == []


def test_a_set_names_its_problems_and_devices(tmp_path: Path) -> None:
    (found,), _ = imported(tmp_path, nvidia_dot_yaml=SET)
    assert found.id == "technique/gpumode/set-nvidia"
    assert "1 GPU MODE problems on B200: scale" in found.file.summary


@pytest.mark.parametrize("body", ["problems:\n  - directory: [unclosed", "problems:\n- directory:\n"])
def test_a_broken_set_is_refused(tmp_path: Path, body: str) -> None:
    found, report = imported(tmp_path, x_dot_yaml=body)
    assert found == []
    assert "expected" in (report.lines[0].reason or "")
