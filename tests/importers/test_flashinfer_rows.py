"""Workloads, traces and blobs of FlashInfer Trace, and the SOL-ExecBench dialect, come in and go out as they were."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from kb.config import find_root
from kb.importers.flashinfer_schema import original, runs, stand_in
from kb.service import exporting, importing
from kb.service.initialising import init
from kb.store import files, layout

WORKLOAD: dict[str, Any] = {
    "definition": "exp_h64",
    "solution": None,
    "workload": {"uuid": "11111111-aaaa", "axes": {"n": 3}, "inputs": {"x": {"type": "random"}}},
    "evaluation": None,
}


def tensor_file(name: str = "x") -> bytes:
    header = json.dumps({name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(8)


def trace(
    uuid: str = "1", *, status: str = "PASSED", device: str | None = "NVIDIA B200", **figures: float
) -> dict[str, Any]:
    passed = status == "PASSED"
    performance = {"latency_ms": 0.01, "reference_latency_ms": 10.0, "speedup_factor": 1000.0, **figures}
    return {
        "definition": "exp_h64",
        "workload": {"uuid": uuid, "axes": {"n": 3}, "inputs": {"x": {"type": "random"}}},
        "solution": "exp_rows",
        "evaluation": {
            "status": status,
            "environment": {"hardware": device, "libs": {"torch": "2.9"}} if device else None,
            "timestamp": "2026-01-01T00:00:00",
            "log": "",
            "correctness": {"max_relative_error": 0.0, "max_absolute_error": 0.0} if passed else None,
            "performance": performance if passed else None,
        },
    }


def lines(*rows: object) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def imported(home: Path, source: Path, device: str | None = None) -> tuple[dict[str, str], importing.Report]:
    init(home)
    root = find_root(str(home))
    options = importing.options_of(
        format_="flashinfer-trace",
        write=True,
        stated=("some/where", None, "MIT"),
        allow=[],
        device=device,
        toolchain=[],
    )
    report = importing.run(root, str(source), options)
    ids = list(layout.entry_ids(root.entries))
    return {one: files.read(layout.folder_of(root.entries, one), one).digest for one in ids}, report


def put(folder: Path, **bodies: bytes) -> Path:
    for name, body in bodies.items():
        place = folder / name.replace("__", "/").replace("_dot_", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(body)
    return folder


def round_trip(tmp_path: Path, source: Path) -> tuple[dict[str, str], Path, exporting.Export]:
    first, _ = imported(tmp_path / "one", source)
    made = exporting.export(find_root(str(tmp_path / "one")), "flashinfer-trace", [], tmp_path / "out")
    again, _ = imported(tmp_path / "two", tmp_path / "out")
    assert sorted(again.values()) == sorted(first.values())
    return first, tmp_path / "out", made


def facts(home: Path, name: str) -> dict[str, Any]:
    stored = files.read(layout.folder_of(home / "entries", name), name)
    return dict(stored.facts)


def test_workloads_traces_and_blobs_come_back_with_the_same_digests(tmp_path: Path) -> None:
    named = json.loads(json.dumps(WORKLOAD))
    named["workload"]["inputs"]["x"] = {"type": "safetensors", "path": "./blob/w/a.safetensors", "tensor_key": "x"}
    source = put(
        tmp_path / "in",
        workloads__exp_dot_jsonl=lines(WORKLOAD, named),
        traces__exp_dot_jsonl=lines(trace("1"), trace("2"), trace("3", device="NVIDIA H200")),
        blob__w__a_dot_safetensors=tensor_file(),
    )
    first, out, made = round_trip(tmp_path, source)
    assert len(first) == 3
    assert (out / "blob/w/a.safetensors").read_bytes() == tensor_file()
    assert sum(one.startswith("traces/") for one in made.files) == 2
    assert not made.left_out


def test_a_large_blob_is_kept_as_path_size_and_digest_and_still_comes_back_the_same(tmp_path: Path) -> None:
    named = json.loads(json.dumps(WORKLOAD))
    named["workload"]["inputs"]["x"] = {"type": "safetensors", "path": "big.safetensors", "tensor_key": "x"}
    source = put(tmp_path / "in", w_dot_jsonl=lines(named), big_dot_safetensors=tensor_file() + bytes(600 << 10))
    _, out, made = round_trip(tmp_path, source)
    assert not (out / "big.safetensors").exists()
    assert "without 1 blobs" in made.left_out[0].reason


def test_figures_need_a_device_and_a_factor_against_python_is_no_speed_up(tmp_path: Path) -> None:
    source = put(tmp_path / "in", t_dot_jsonl=lines(trace("1"), trace("2", device=None)))
    first, report = imported(tmp_path / "kb", source)
    with_device = next(one for one in first if "b200" in one)
    (claim,) = facts(tmp_path / "kb", with_device)["claims"]
    assert (claim["value"], claim["unit"], claim["device"]) == (10.0, "us", "NVIDIA B200")
    assert not {"speedup", "baseline", "baseline_value"} & set(claim)
    assert sorted(line.evidence or "" for line in report.lines) == ["documented", "reported"]
    stated, _ = imported(tmp_path / "kb2", source, device="NVIDIA H100 80GB HBM3")
    assert all(facts(tmp_path / "kb2", one)["claims"] for one in stated)


def test_what_never_passed_is_a_negative_result_and_latency_zero_is_no_measurement(tmp_path: Path) -> None:
    source = put(
        tmp_path / "in",
        bad_dot_jsonl=lines(trace("1", status="INCORRECT_NUMERICAL"), trace("2", status="TIMEOUT")),
        zero_dot_jsonl=lines({**trace("1", latency_ms=0, speedup_factor=0), "solution": "zero"}),
    )
    first, _ = imported(tmp_path / "kb", source)
    bad = facts(tmp_path / "kb", next(one for one in first if "exp-rows" in one))
    assert bad["outcome"] == "incorrect"
    assert "none of 2" in bad["negative"]["effect"]
    assert "claims" not in facts(tmp_path / "kb", next(one for one in first if "zero" in one))


def test_equal_latencies_on_two_devices_are_a_copy(tmp_path: Path) -> None:
    rows = [trace(str(n), device=device) for device in ("NVIDIA B200", "NVIDIA H200") for n in range(5)]
    _, report = imported(tmp_path / "kb", put(tmp_path / "in", t_dot_jsonl=lines(*rows)))
    assert report.copies == 1


def test_a_file_larger_than_an_entry_becomes_several_and_loses_no_row(tmp_path: Path) -> None:
    rows = [trace(f"{n:06}") for n in range(2500)]
    first, _ = imported(tmp_path / "kb", put(tmp_path / "in", t_dot_jsonl=lines(*rows)))
    assert len(first) > 1
    found = [
        row
        for one in first
        for row in json.loads((tmp_path / "kb/entries" / one / "traces.json").read_text(encoding="utf-8"))
    ]
    assert sorted(row["workload"]["uuid"] for row in found) == [f"{n:06}" for n in range(2500)]


def test_the_dialect_comes_back_and_lies_in_folders_of_its_own(tmp_path: Path) -> None:
    definition = {
        "name": "split_h8",
        "op_type": "reshape",
        "axes": {
            "n": {"type": "var"},
            "h": {"type": "const", "value": 8},
            "d": {"type": "expr", "expression": "n // h"},
        },
        "custom_inputs_entrypoint": "draw",
        "inputs": {"x": {"shape": ["n"], "dtype": "float64"}},
        "outputs": {"y": {"shape": ["h", "d"], "dtype": "float64"}},
        "reference": "def run(x):\n    return x.view(8, -1)\n",
    }
    solution = {
        "name": "split",
        "definition": "split_h8",
        "author": "nobody",
        "spec": {"languages": ["pytorch"], "target_hardware": ["LOCAL"], "entry_point": "main.py::run"},
        "sources": [{"path": "main.py", "content": "def run(x):\n    return x.view(8, -1)\n"}],
    }
    bare = {"uuid": "u1", "axes": {"n": 64}, "inputs": {"x": {"type": "custom"}}, "tolerance": {"max_atol": 0.01}}
    source = put(
        tmp_path / "in",
        problem__definition_dot_json=json.dumps(definition).encode(),
        problem__solution_dot_json=json.dumps(solution).encode(),
        problem__workload_dot_jsonl=lines(bare),
    )
    first, out, _ = round_trip(tmp_path, source)
    assert len(first) == 3
    assert json.loads((out / "sol_execbench/split_h8/workload.jsonl").read_text(encoding="utf-8")) == bare
    assert json.loads((out / "sol_execbench/split_h8/definition.json").read_text(encoding="utf-8")) == definition
    assert not (out / "definitions").exists()


def test_a_definition_without_an_op_type_is_one_of_the_dialect(tmp_path: Path) -> None:
    definition = {
        "name": "double_n",
        "axes": {"n": {"type": "var"}},
        "inputs": {"x": {"shape": ["n"], "dtype": "float32"}},
        "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
        "reference": "def run(x):\n    return 2 * x\n",
    }
    source = put(tmp_path / "in", a__definition_dot_json=json.dumps(definition).encode())
    _, out, made = round_trip(tmp_path, source)
    assert made.files == ("sol_execbench/double_n/definition.json",)
    assert json.loads((out / made.files[0]).read_text(encoding="utf-8")) == definition


def test_a_reference_that_nobody_published_becomes_one_that_loads_and_raises_and_goes_again() -> None:
    for text in (None, "[code removed: 70 chars]", "two\n\nlines", ""):
        made = stand_in(text)
        assert runs(made)
        assert original(made) == text
        scope: dict[str, Any] = {}
        exec(made, scope)  # noqa: S102 - our own text
        with pytest.raises(NotImplementedError):
            scope["run"]()
    assert original("def run(x):\n    return x\n") == "def run(x):\n    return x\n"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lines(WORKLOAD)[:-30], "line 1: expected JSON"),
        (lines(WORKLOAD) + lines(WORKLOAD).replace(b'"n": 3', b'"n": -3'), "line 2: field workload.axes"),
        (lines(WORKLOAD).replace(b'"n": 3', b'"n": 3, "n": 4'), "distinct keys"),
        (lines(trace()).replace(b"0.01", b"NaN"), "NaN"),
        (lines(trace()).replace(b"0.01", b"1e400"), "1e400"),
        (lines(trace(latency_ms=-1)), "milliseconds"),
        (lines(trace(latency_ms=10.0)), "the unit is not sure"),
        (lines(trace(latency_ms=4e6, speedup_factor=0)), "milliseconds"),
        (lines({**WORKLOAD, "more": json.loads("[" * 30 + "]" * 30)}), "levels of nesting"),
        (lines(WORKLOAD).replace(b'"random"', b'"pickle"'), "one of the types"),
        (
            lines(WORKLOAD).replace(
                b'{"type": "random"}', b'{"type": "safetensors", "path": "../../x.safetensors", "tensor_key": "x"}'
            ),
            "inside the data set",
        ),
        (lines(WORKLOAD) + b'{"workload": "' + b"x" * (2 << 20), "line 2: expected at most"),
        (lines(WORKLOAD["workload"]), "bare workload"),
    ],
    ids=[
        "cut",
        "size",
        "twice",
        "nan",
        "1e400",
        "negative",
        "units",
        "hours",
        "deep",
        "type",
        "escape",
        "long",
        "bare",
    ],
)
def test_a_hostile_line_refuses_its_whole_file_and_says_where(tmp_path: Path, body: bytes, reason: str) -> None:
    found, report = imported(tmp_path / "kb", put(tmp_path / "in", t_dot_jsonl=body))
    assert found == {}
    assert any(reason in (line.reason or "") for line in report.lines), [line.reason for line in report.lines]


@pytest.mark.parametrize(
    ("blob", "reason"),
    [
        (b"short", "found no header"),
        ((1 << 62).to_bytes(8, "little") + b"{}", "found no header"),
        (tensor_file("other"), "it has no tensor"),
    ],
)
def test_a_blob_that_is_no_tensor_file_refuses_the_workloads_that_name_it(
    tmp_path: Path, blob: bytes, reason: str
) -> None:
    named = json.loads(json.dumps(WORKLOAD))
    named["workload"]["inputs"]["x"] = {"type": "safetensors", "path": "a.safetensors", "tensor_key": "x"}
    source = put(tmp_path / "in", w_dot_jsonl=lines(named), a_dot_safetensors=blob)
    found, report = imported(tmp_path / "kb", source)
    assert found == {}
    assert any(reason in (line.reason or "") for line in report.lines)


def test_contest_results_claim_nothing_until_the_device_is_stated(tmp_path: Path) -> None:
    one = {"status": "PASSED", "latency_ms": 0.003, "reference_latency_ms": 3.0, "speedup_factor": 1000.0}
    source = put(tmp_path / "in", r_dot_json=json.dumps({"results": {"exp_h64": {"u1": one}}}).encode())
    _, report = imported(tmp_path / "kb", source)
    assert [line.evidence for line in report.lines] == ["documented"]
    _, report = imported(tmp_path / "kb2", source, device="NVIDIA B200")
    assert [line.evidence for line in report.lines] == ["reported"]
    wrong = json.dumps({"results": {"exp_h64": {"u1": {**one, "latency_ms": 3.0}}}}).encode()
    found, report = imported(tmp_path / "kb3", put(tmp_path / "in2", r_dot_json=wrong))
    assert found == {}
    assert "unit is not sure" in (report.lines[0].reason or "")


def test_an_entry_whose_blob_was_changed_is_left_out_of_an_export(tmp_path: Path) -> None:
    named = json.loads(json.dumps(WORKLOAD))
    named["workload"]["inputs"]["x"] = {"type": "safetensors", "path": "a.safetensors", "tensor_key": "x"}
    source = put(tmp_path / "in", w_dot_jsonl=lines(named), a_dot_safetensors=tensor_file())
    (name,), _ = imported(tmp_path / "kb", source)
    (tmp_path / "kb/entries" / name / "blob_0.txt").write_bytes(base64.encodebytes(b"other"))
    made = exporting.export(find_root(str(tmp_path / "kb")), "flashinfer-trace", [], tmp_path / "out")
    assert any("not those of its digest" in one.reason for one in made.left_out)
