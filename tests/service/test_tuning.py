"""Config entries out of the launch parameters of measured kernels."""

import copy
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kb import launch
from kb.config import Root
from kb.errors import ConfigError, EntryNotFoundError
from kb.models.record import written
from kb.service.accepting import accept
from kb.service.bundling import bundle
from kb.service.checking import check
from kb.service.tuning import tuned
from kb.service.verifying import verify
from kb.store import records
from kb.store.records import Filed
from tests.service import bundled

FileRecord = Callable[..., Filed]
Measured = Callable[..., Filed]
Capture = pytest.CaptureFixture[str]

KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def _silu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, x / (1 + tl.exp(-x)), mask=at < n)


def run(x):
    y = torch.empty_like(x)
    block = 512 if x.numel() > 1000 else 128
    _silu[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block, num_warps=block // 128)
    return y
"""

FACTS = """schema = 1
version = {version}
title = "SiLU, flat"
summary = "One program a block of elements."
outcome = "works"
operator = "silu"
language = "triton"
entry_point = "kernel.py:run"
dtypes = ["float32"]
license = "Apache-2.0"
bottleneck = "dram"
[requires]
arch = ["cpu", "sm_90"]
[limits]
hidden_size = {{ max = 300 }}
num_tokens = {{ max = 40 }}
[source]
origin = "written here"
"""

FLAT = "kernel/silu/flat"
CONFIG = "config/silu/flat-h200-triton-3-6-0"
H200: dict[str, Any] = {"name": "NVIDIA H200", "arch": "sm_90", "uuid": "GPU-1", "boot_id": "b1"}
SOFTWARE = {"python": "3.12.3", "torch": "2.11.0+cu130", "triton": "3.6.0", "numpy": "2.3.1"}


def write_flat(root: Root, version: int = 1, code: str = "") -> None:
    folder = root.entries / FLAT
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "entry.toml").write_text(FACTS.format(version=version), encoding="utf-8")
    (folder / "README.md").write_text("# SiLU, flat\n", encoding="utf-8")
    (folder / "kernel.py").write_text(KERNEL + code, encoding="utf-8")


@pytest.fixture(scope="session")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Root, dict[str, Any]]:
    """Return a knowledge base with a record of a Triton kernel that a bundle judged on the CPU, and that record."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("settings")
        patch.setenv("KB_CONFIG_DIR", str(home / "config"))
        patch.setenv("KB_CACHE_DIR", str(home / "cache"))
        root = Root(tmp_path_factory.mktemp("base"))
        write_flat(root)
        archive = tmp_path_factory.mktemp("job") / "job.pyz"
        bundle(root, [FLAT], archive, device_kind="cpu")
        ran = bundled.run(archive, "-o", "evidence.json")
        assert ran.returncode == 0, ran.stderr
        (done,) = accept(root, [archive.parent / "evidence.json"])
        assert done.record is not None
        return root, records.read_one(root.entries, FLAT, Path(done.record).name).raw


@pytest.fixture
def launched(genuine: tuple[Root, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the genuine record says of launches."""
    return copy.deepcopy(genuine[1]["ghosts"]["launched"])


@pytest.fixture
def measured(root: Root, file_record: FileRecord, timing: dict[str, Any], launched: list[dict[str, Any]]) -> Measured:
    """Return a function that files a record of the flat kernel on an H200 that timed its first launched workload."""
    write_flat(root)

    def file(when: str = "2026-11-01T10:00:00Z", *, median: float = 10.0, **changes: Any) -> Filed:  # noqa: ANN401 - any field may change
        one = copy.deepcopy(timing)
        one["workload"] |= {"axes": launched[0]["axes"], "dtype": launched[0]["dtype"]}
        one["candidate_us"]["median"] = median
        one |= {name: changes.pop(name) for name in ("quarantined", "clocks_agree") if name in changes}
        changes.setdefault("ghosts", {"launched": launched})
        return file_record(root, FLAT, when, **{"device": H200, "software": SOFTWARE, "timing": [one], **changes})

    return file


def test_a_kernel_says_with_which_parameters_it_was_launched_for_every_workload(launched: list[dict[str, Any]]) -> None:
    assert {one["kernel"] for one in launched} == {"_silu"}
    assert {one["parameters"]["BLOCK"] for one in launched} == {128, 512}
    for one in launched:
        sizes = one["axes"]["num_tokens"] * one["axes"]["hidden_size"]
        block = 512 if sizes > 1000 else 128
        assert one["parameters"] == {"BLOCK": block, "num_warps": block // 128}


def test_what_a_cpu_only_interpreted_is_no_tuning(genuine: tuple[Root, dict[str, Any]]) -> None:
    assert tuned(genuine[0]) == []


def test_measured_workloads_alone_become_rows_with_their_record(
    root: Root,
    measured: Measured,
    launched: list[dict[str, Any]],
) -> None:
    filed = measured()
    (dry,) = tuned(root)
    assert (dry.state, dry.id, dry.rows) == ("add", CONFIG, 1)
    assert not (root.entries / CONFIG).exists()
    (done,) = tuned(root, write=True)
    assert (done.state, done.version) == ("add", 1)
    made = json.loads((root.entries / CONFIG / "config.json").read_bytes())
    first = launched[0]
    assert made["kernels"]["_silu"] == [
        {
            "axes": first["axes"],
            "dtype": "float32",
            "parameters": first["parameters"],
            "median_us": {"cold, eager": 10.0},
            "record": filed.path,
        }
    ]
    facts = tomllib.loads((root.entries / CONFIG / "entry.toml").read_text(encoding="utf-8"))
    assert facts["tuned"] == {
        "entry": FLAT, "device": "NVIDIA H200", "toolchain": {"triton": "3.6.0"}, "axes": first["axes"],
    }  # fmt: skip
    assert facts["requires"] == {"arch": ["sm_90"]}
    assert facts["license"] == "Apache-2.0"
    assert facts["applies_to"] == ["silu"], "it computes nothing itself: a search for SiLU answers with kernels first"
    assert "operator" not in facts
    assert check(None, root, history=False).problems == ()


def test_doing_it_again_changes_nothing_and_a_newer_record_makes_a_new_version(root: Root, measured: Measured) -> None:
    measured()
    tuned(root, write=True)
    before = {path: path.read_bytes() for path in (root.entries / CONFIG).iterdir()}
    assert [one.state for one in tuned(root, write=True)] == ["unchanged"]
    assert {path: path.read_bytes() for path in (root.entries / CONFIG).iterdir()} == before
    newer = measured("2026-11-02T10:00:00Z", median=9.0)
    measured("2026-10-01T10:00:00Z", median=99.0)
    (done,) = tuned(root, write=True)
    assert (done.state, done.version) == ("update", 2)
    (row,) = json.loads((root.entries / CONFIG / "config.json").read_bytes())["kernels"]["_silu"]
    assert (row["median_us"], row["record"]) == ({"cold, eager": 9.0}, newer.path)


def test_an_older_record_adds_the_workloads_that_it_alone_has(
    root: Root, measured: Measured, timing: dict[str, Any], launched: list[dict[str, Any]]
) -> None:
    measured()
    tuned(root, write=True)
    other = copy.deepcopy(timing)
    other["workload"] |= {"axes": launched[1]["axes"], "dtype": launched[1]["dtype"]}
    measured("2026-10-01T10:00:00Z", timing=[other])
    (done,) = tuned(root, write=True)
    assert (done.state, done.version, done.rows) == ("update", 2, 2)


def test_another_triton_or_device_is_another_entry(root: Root, measured: Measured) -> None:
    measured()
    measured(software={**SOFTWARE, "triton": "3.7.0"})
    measured(device={**H200, "name": "NVIDIA H100 80GB HBM3"})
    found = [one.id.rpartition("/")[2] for one in tuned(root, write=True)]
    assert found == ["flat-h100-triton-3-6-0", "flat-h200-triton-3-6-0", "flat-h200-triton-3-7-0"]
    assert [one.device for one in tuned(root, device="H100")] == ["NVIDIA H100 80GB HBM3"]


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "rejected"},
        {"verdict": "needs_review"},
        {"quarantined": "below the floor"},
        {"clocks_agree": False},
        {"ghosts": {}},
        {"ghosts": {"launched": None}},
        {"timing": None},
        {"software": {"python": "3.12.3"}},
    ],
)
def test_what_counts_for_nothing_gives_no_row(root: Root, measured: Measured, changes: dict[str, Any]) -> None:
    measured(**changes)
    assert tuned(root, write=True) == []


@pytest.mark.parametrize(
    "broken",
    [
        {"kernel": "../../x"},
        {"kernel": 7},
        {"parameters": {}},
        {"parameters": {"BLOCK": "a\x1b[2J"}},
        {"parameters": {"BLOCK": [1]}},
        {"parameters": {"a b": 1}},
        {"parameters": {f"P{number}": 1 for number in range(65)}},
        {"axes": []},
        {"axes": {"num_tokens": "1"}},
        {"more": 1},
    ],
)
def test_a_launch_of_another_form_is_left_out(
    root: Root,
    measured: Measured,
    launched: list[dict[str, Any]],
    broken: dict[str, Any],
) -> None:
    measured(ghosts={"launched": ["", None, {**launched[0], **broken}]})
    assert tuned(root, write=True) == []


def test_parameters_of_other_code_are_not_those_of_this_one(root: Root, measured: Measured) -> None:
    measured()
    write_flat(root, version=2, code="\n# another\n")
    assert tuned(root) == []


def test_a_record_that_somebody_edited_gives_nothing(root: Root, measured: Measured) -> None:
    filed = measured()
    raw = copy.deepcopy(filed.raw)
    raw["ghosts"]["launched"][0]["parameters"]["BLOCK"] = 64
    path = root.entries / filed.path
    path.unlink()
    body = written(raw)
    (path.parent / records.file_name(body, created_utc=raw["created_utc"], arch="sm_90")).write_bytes(body)
    assert verify(root).faults
    assert tuned(root) == []


def test_the_command_lists_then_files(root: Root, measured: Measured, capsys: Capture) -> None:
    assert launch.main(["tuned", "--root", str(root.path)]) == 0
    assert "no record holds" in capsys.readouterr().err
    measured()
    assert launch.main(["tuned", FLAT, "--root", str(root.path)]) == 0
    out = capsys.readouterr()
    assert CONFIG in out.out
    assert "1 to file (--write)" in out.err
    assert launch.main(["tuned", FLAT, "--root", str(root.path), "--write", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["state"] == "add"


def test_strange_ids_and_packaged_entries_are_refused(root: Root) -> None:
    with pytest.raises(EntryNotFoundError):
        tuned(root, ["kernel/silu/none"])
    with pytest.raises(ConfigError):
        tuned(Root(root.path, packaged=True), write=True)
