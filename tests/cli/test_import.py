"""``kb import`` from the shell: what it ends with when nothing could be taken."""

import json
from pathlib import Path

import pytest

from kb import launch
from kb.errors import LicenseError, SourceFormatError
from kb.service.initialising import init

NAME = "E=256,N=512,device_name=NVIDIA_H200.json"
GOOD = json.dumps({"1": {"BLOCK_SIZE_M": 16, "num_warps": 4}})


def _import(place: Path, bodies: dict[str, str], *more: str) -> int:
    for name, body in bodies.items():
        (place / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "in" / name).write_text(body)
    if not (place / "kb").exists():
        init(place / "kb")
    return launch.main(["import", str(place / "in"), "--root", str(place / "kb"), *more])


@pytest.mark.parametrize("more", [(), ("--write",), ("--json",)])
def test_where_only_licenses_stood_in_the_way_the_code_is_that_of_licenses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    assert _import(tmp_path, {f"vllm/{NAME}": GOOD}, *more) == LicenseError.exit_code
    shown = capsys.readouterr()
    assert "nothing was taken, 1 refused: no license is stated; if you know it: --license SPDX" in shown.err
    assert "refused" in shown.out  # the report is there all the same


def test_where_all_is_broken_the_code_is_that_of_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bodies = {f"vllm/{NAME}": "{", "vllm/what.json": "[]"}
    assert _import(tmp_path, bodies, "--license", "MIT") == SourceFormatError.exit_code
    assert "nothing was taken, 2 refused: expected JSON" in capsys.readouterr().err


@pytest.mark.parametrize("more", [(), ("--write",)])
def test_one_that_is_taken_is_enough(tmp_path: Path, more: tuple[str, ...]) -> None:
    assert _import(tmp_path, {f"vllm/{NAME}": GOOD, "vllm/what.json": "[]"}, "--license", "MIT", *more) == 0
    assert _import(tmp_path, {}, "--license", "MIT") == 0  # unchanged counts as taken


def test_a_readme_alone_is_no_refusal(tmp_path: Path) -> None:
    assert _import(tmp_path, {"README.md": "nothing here"}) == 0
