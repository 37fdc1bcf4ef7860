"""Whose the time on a device was, by the names of kernels; what the tools say is read and never believed blindly."""

from pathlib import Path

import pytest

from kb.models.measured import Kernels
from kb.validators.runtime import accelerator, kernels, replies, sanitizer

SOURCE = b'''
import torch, triton
@triton.autotune([], key=[])
@triton.jit
def _scale(x): ...
TEXT = """
extern "C" __global__ void __launch_bounds__(256) fold(float* x) {}
template <int N> __global__ void spread(float* x) {}
"""
def run(x): ...
'''


def test_own_kernels_are_triton_functions_and_global_functions_in_texts() -> None:
    assert kernels.own_names(SOURCE) == {"_scale", "fold", "spread"}
    assert kernels.own_names(b"def broken(") == frozenset()


def test_device_time_is_shared_out_by_owner() -> None:
    rows = [
        ["_scale", 2, 30.0],
        ["void spread<4>(float*)", 1, 10.0],
        ["triton_poi_fused_add_0", 1, 20.0],
        ["void at::native::elementwise_kernel<128>", 1, 40.0],
        ["_scale", 1, 0.0],
    ]
    found = kernels.summary(rows, SOURCE)
    assert (found["own_share"], found["generated_share"]) == (0.4, 0.2)
    assert (found["declared"], found["never_ran"], found["jitted_ran"]) == (["_scale", "fold", "spread"], [], True)
    assert [one["owner"] for one in found["device"]] == ["library", "own", "generated", "own"]
    assert found["device"][1]["launches"] == 3


def test_nothing_that_ran_has_no_share() -> None:
    found = kernels.summary([], SOURCE)
    assert (found["own_share"], found["never_ran"], found["jitted_ran"]) == (None, ["_scale"], False)
    assert kernels.summary([], b"def run(x): ...")["jitted_ran"] is None


@pytest.mark.parametrize("rows", [[], [["_scale", 2, 30.0], ["void at::native::elementwise_kernel<128>", 1, 40.0]]])
def test_a_record_has_a_place_for_all_that_is_found(rows: list[list[object]]) -> None:
    found = kernels.summary(rows, SOURCE)
    assert Kernels.model_validate(found).model_dump(mode="json") == found


def test_a_function_that_another_kernel_calls_is_no_kernel_that_has_to_run() -> None:
    source = b"@triton.jit\ndef _part(x): ...\n@triton.jit\ndef _whole(x):\n    _part(x)\n"
    assert kernels.jitted_names(source) == {"_whole"}


@pytest.mark.parametrize(
    "raw",
    [None, [["k", 1]], [["k", -1, 1.0]], [[1, 1, 1.0]], [["k", 1, "1"]], [["k", 1, float("nan")]], [["k", 1, -1]]],
)
def test_a_profile_of_another_form_is_forged(raw: object) -> None:
    with pytest.raises(replies.ForgedReplyError):
        replies.kernel_rows({"kernels": raw})


def test_a_call_that_raised_has_no_kernels() -> None:
    assert replies.kernel_rows({"error": {"type": "E", "message": "m"}}) == []
    assert replies.kernel_rows({"kernels": [["k\n\x1b[31m", 1, 2]]}) == [["k\\n\\x1b[31m", 1, 2.0]]


def test_a_log_of_the_sanitizer_is_counted_and_shown_escaped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "========= COMPUTE-SANITIZER\n========= Invalid __global__ read of size 4 bytes\n"
        "=========     at _rmsnorm+0x1\n========= ERROR SUMMARY: 3 errors\n",
        encoding="utf-8",
    )
    assert sanitizer.read(log) == {"errors": 3, "first": ["Invalid __global__ read of size 4 bytes"]}
    log.write_text("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n", encoding="utf-8")
    assert sanitizer.read(log) == {"errors": 0, "first": []}
    log.write_text("========= Invalid __global__ read of size 4 bytes\n", encoding="utf-8")
    assert sanitizer.read(log)["errors"] == 1
    log.write_text("cut off", encoding="utf-8")
    assert sanitizer.read(log)["errors"] is None
    assert sanitizer.read(tmp_path / "none")["errors"] is None


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cuda:-1", "cuda:1.5", ""])
def test_a_device_of_another_name_is_none(name: str) -> None:
    with pytest.raises(ValueError, match="expected cpu or cuda:N"):
        accelerator.index_of(name)


def test_a_worker_sees_one_gpu_among_those_that_the_judge_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a, GPU-b")
    assert accelerator.visible("cuda:1") == "GPU-b"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert accelerator.visible("cuda:1") == "1"
    assert accelerator.environment("cuda:0", "/c")["CUDA_VISIBLE_DEVICES"] == "0"
    assert "TRITON_INTERPRET" not in accelerator.environment("cuda:0", "/c")
