"""KernelBench: baselines belong to their device, results carry no speed-up over plain PyTorch."""

import json
from pathlib import Path
from typing import Any

import pytest

from kb.config import find_root
from kb.service import importing
from kb.service.checking import check, require_valid
from kb.service.initialising import init
from kb.store import files, layout


def row(mean: float | None = 0.4, hardware: str = "NVIDIA B200", **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    low, high = (None, None) if mean is None else (mean * 0.9, mean * 1.1)
    return {"mean": mean, "std": 0.01, "min": low, "max": high, "num_trials": 100, "hardware": hardware, **fields}


def sample(**fields: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "sample_id": 0,
        "compiled": True,
        "correctness": True,
        "metadata": {"hardware": "NVIDIA H100 80GB HBM3", "device": "cuda:0"},
        "runtime": 0.5,
        "runtime_stats": {"mean": 0.5},
        "ref_runtime": 5.0,
        **fields,
    }


def imported(tmp_path: Path, name: str, body: object) -> tuple[list[files.StoredEntry], importing.Report]:
    place = tmp_path / "in/results/timing" / name
    place.parent.mkdir(parents=True)
    place.write_text(body if isinstance(body, str) else json.dumps(body), encoding="utf-8")
    init(tmp_path / "kb")
    root = find_root(str(tmp_path / "kb"))
    options = importing.options_of(
        format_="kernelbench", write=True, stated=("some/where", None, "MIT"), allow=[], device=None, toolchain=[]
    )
    report = importing.run(root, str(tmp_path / "in"), options)
    require_valid(check(None, root, history=False))
    found = [files.read(layout.folder_of(root.entries, one), one) for one in layout.entry_ids(root.entries)]
    return found, report


def test_a_baseline_is_reported_for_the_device_it_names_and_compares_with_nothing(tmp_path: Path) -> None:
    body = {"level1": {"1_a.py": row(), "2_b.py": row(None), "3_c.py": None}, "level2": {"1_d.py": row(None)}}
    (found,), report = imported(tmp_path, "somewhere/baseline_time_torch.json", body)
    (claim,) = found.file.claims
    assert (claim.value, claim.unit, claim.device, claim.workload) == (400.0, "us", "NVIDIA B200", "level1 1_a.py")
    assert (claim.backend, claim.baseline, claim.speedup) == ("PyTorch, eager", None, None)
    assert "2 without a time" in found.readme
    assert sorted((line.state, line.path.partition("#")[2]) for line in report.lines) == [
        ("add", ""),
        ("left", "level2"),
    ]


def test_equal_times_on_two_devices_are_a_copy(tmp_path: Path) -> None:
    problems = {f"{n}_x.py": row(0.1 * n) for n in range(1, 6)}
    other = {name: {**one, "hardware": "NVIDIA H200"} for name, one in problems.items()}
    body = {"level1": problems, "level2": other}
    found, report = imported(tmp_path, "a/baseline_time_torch_compile_inductor_default.json", body)
    assert len(found) == 2
    assert report.copies == 1


@pytest.mark.parametrize("nest", ["sample", "list", "level"])
def test_results_claim_times_and_no_speed_up_over_plain_pytorch(tmp_path: Path, nest: str) -> None:
    wrong = sample(correctness=False, runtime=-1.0, metadata={"hardware": "NVIDIA H100 80GB HBM3", "log": "x" * 9000})
    body: Any = {
        "sample": {"1": sample(), "2": wrong},
        "list": {"1": [sample(), wrong]},
        "level": {"1": {"1": {"0": sample(), "1": wrong}}},
    }[nest]
    (found,), _ = imported(tmp_path, "my_run/eval_results.json", body)
    (claim,) = found.file.claims
    assert (claim.value, claim.device, claim.speedup, claim.baseline) == (500.0, "NVIDIA H100 80GB HBM3", None, None)
    assert "1 of 2" in found.file.summary
    assert len(found.files["results.json"]) < 6000


def test_a_run_that_got_nothing_right_is_a_negative_result(tmp_path: Path) -> None:
    (found,), _ = imported(tmp_path, "r/eval_results.json", {"1": [sample(correctness=False, runtime=-1)]})
    assert found.file.outcome == "incorrect"
    assert not found.file.claims


@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        ("baseline_time_torch.json", json.dumps({"l": {"a": row()}})[:-8], "expected JSON"),
        ("baseline_time_torch.json", json.dumps({"l": {"a": row()}}).replace("0.4,", "NaN,"), "NaN"),
        ("baseline_time_torch.json", json.dumps({"l": {"a": row()}}).replace("0.4,", "1e400,"), "1e400"),
        ("baseline_time_torch.json", '{"l": {"a": null, "a": null}}', "distinct keys"),
        ("baseline_time_torch.json", '{"l": {"a": {"mean": 400.0, "min": 0.3, "max": 0.5}}}', "unit is not sure"),
        ("baseline_time_torch.json", '{"l": {"a": {"mean": 4e6, "min": 4e6, "max": 4e6}}}', "milliseconds"),
        ("baseline_time_torch.json", '{"l": {"a": {"mean": -1}}}', "milliseconds"),
        ("baseline_time_torch.json", '{"l": ' + "[" * 30 + "]" * 30 + "}", "levels of nesting"),
        ("baseline_time_torch.json", '{"l": [1]}', "object of problems"),
        ("eval_results.json", json.dumps({"1": sample(runtime=1e9)}), "milliseconds"),
        ("eval_results.json", json.dumps({"1": sample(compiled="yes")}), "true or false"),
        ("eval_results.json", json.dumps({"1": sample(), "2": 7}), "results of problems"),
    ],
    ids=["cut", "nan", "1e400", "twice", "units", "hours", "negative", "deep", "list", "long", "word", "number"],
)
def test_hostile_files_are_refused_with_the_place(tmp_path: Path, name: str, body: str, reason: str) -> None:
    found, report = imported(tmp_path, name, body)
    assert found == []
    assert reason in (report.lines[0].reason or "")
