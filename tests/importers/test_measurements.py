"""Measured latencies are read from public formats, and what cannot be read is said."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kb.errors import SourceUnavailableError
from kb.importers.measurements import kernelbench
from kb.importers.measurements.costs import COSTS, element_bytes
from kb.importers.measurements.reading import read

DATA = Path(__file__).resolve().parents[1] / "data" / "latencies"
GEMM = "framework,version,device,op_name,kernel_source,gemm_dtype,m,n,k,latency\n"
ROW = "VLLM,0.24.0,NVIDIA B200,gemm,linear,bfloat16,64,4096,2048,0.0125\n"


def test_a_row_is_a_sample(tmp_path: Path) -> None:
    file = tmp_path / "gemm.csv"
    file.write_text(GEMM + ROW, encoding="utf-8")
    (one,) = read(file).samples
    assert one.device == "NVIDIA B200"
    assert one.operator == "gemm"
    assert one.kernel == "VLLM 0.24.0 linear"
    assert one.series == "gemm_dtype=bfloat16 k=2048 n=4096"
    assert dict(one.axes) == {"m": 64.0}
    assert one.latency_us == pytest.approx(12.5)
    assert one.work.flops == 2 * 64 * 4096 * 2048
    assert one.work.moved_bytes == 2 * (64 * 2048 + 4096 * 2048 + 64 * 4096)


def test_the_made_up_tables_are_read_and_are_what_their_script_writes(tmp_path: Path) -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location("made_up_latencies", DATA.parent / "made_up_latencies.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.main(tmp_path)
    for file in sorted(DATA.glob("*.csv")):
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()
    found = read(DATA)
    assert len(found.samples) == 230
    assert found.skipped == ()


def test_rows_that_are_no_measurement_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "gemm.csv"
    odd = [
        ROW.replace(",64,", ",nan,"),
        ROW.replace(",64,", ",-1,"),
        ROW.replace(",64,", ",many,"),
        ROW.replace("0.0125", ""),
        ROW.replace("bfloat16", "float3"),
        ROW.replace(",gemm,", ",sorting,"),
    ]
    file.write_text(GEMM + ROW + "".join(odd), encoding="utf-8")
    found = read(file)
    assert len(found.samples) == 1
    assert dict(found.skipped) == {
        "gemm: a size or a time is not a positive number": 4,
        "gemm: no column or format 'float3'": 1,
        "no cost model for sorting": 1,
    }


def test_a_time_of_zero_is_read_and_left_to_the_roofline_check(tmp_path: Path) -> None:
    file = tmp_path / "gemm.csv"
    file.write_text(GEMM + ROW.replace("0.0125", "0.0"), encoding="utf-8")
    assert [one.latency_us for one in read(file).samples] == [0.0]


@pytest.mark.parametrize("text", [GEMM + "VLLM,0.24.0\n", GEMM + ROW.strip() + ",7,8\n"])
def test_a_ragged_table_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gemm.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SourceUnavailableError, match=r"gemm\.csv, line 2"):
        read(file)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "gemm.csv"
    file.write_bytes(GEMM.encode() + b"\xff\xfe\x00")
    with pytest.raises(SourceUnavailableError, match="cannot be read as CSV"):
        read(file)


def test_another_table_is_left_out_by_name(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("name,age\na,3\n", encoding="utf-8")
    assert read(tmp_path).skipped == (("people.csv: not a table of measured kernels", 1),)


def test_an_empty_folder_and_a_missing_one(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(SourceUnavailableError, match="holds no measurements"):
            read(path)


def test_parquet_is_read_like_csv(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import csv, parquet

    assert pyarrow is not None
    table = csv.read_csv(DATA / "gemm.csv")
    parquet.write_table(table, tmp_path / "gemm_perf.parquet")
    assert read(tmp_path).samples == read(DATA / "gemm.csv").samples


def test_a_broken_parquet_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    file = tmp_path / "gemm_perf.parquet"
    file.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(SourceUnavailableError, match="cannot be read as Parquet"):
        read(file)


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    file = tmp_path / "gemm_perf.parquet"
    file.write_bytes(b"PAR1")
    with pytest.raises(SourceUnavailableError, match="pyarrow is not installed") as caught:
        read(file)
    assert "kernel-kb[tables]" in (caught.value.hint or "")


def cost(operator: str, sizes: Mapping[str, float], formats: Mapping[str, str]) -> tuple[float, float]:
    work = COSTS[operator](sizes, formats)
    return work.flops, work.moved_bytes


MOE = {
    "num_tokens": 4.0, "hidden_size": 2048.0, "inter_size": 512.0, "topk": 8.0, "num_experts": 256.0,
    "moe_tp_size": 1.0, "moe_ep_size": 1.0,
}  # fmt: skip


def test_experts_that_no_token_hits_are_not_read() -> None:
    few = cost("moe", MOE, {"moe_dtype": "bfloat16", "distribution": "balanced"})
    assert few[0] == 6 * 32 * 2048 * 512
    assert few[1] == 32 * 3 * 2048 * 512 * 2 + 2 * 4 * 2048 * 2
    many = cost("moe", {**MOE, "num_tokens": 4096.0}, {"moe_dtype": "bfloat16", "distribution": "balanced"})
    assert many[1] == 256 * 3 * 2048 * 512 * 2 + 2 * 4096 * 2048 * 2
    skewed = cost("moe", MOE, {"moe_dtype": "bfloat16", "distribution": "power_law_1.2"})
    assert skewed[1] < few[1]


def test_scales_count_with_their_elements() -> None:
    assert element_bytes("nvfp4") == 0.5 + 1 / 16
    assert element_bytes("float3") is None


def test_a_decode_reads_each_key_once() -> None:
    sizes = {
        "batch_size": 2.0, "isl": 1.0, "step": 1023.0, "num_heads": 16.0, "num_key_value_heads": 2.0, "head_dim": 256.0,
        "window_size": 0.0,
    }  # fmt: skip
    flops, moved = cost("generation_attention", sizes, {"kv_cache_dtype": "fp8"})
    assert flops == 4 * 2 * 16 * 256 * 1024
    assert moved == 2 * 1024 * 2 * 2 * 256 + 2 * 2 * 16 * 256 * 2
    windowed = cost("generation_attention", {**sizes, "window_size": 128.0}, {"kv_cache_dtype": "fp8"})
    assert windowed[0] == flops / 8


def write_times(folder: Path, levels: object) -> Path:
    file = folder / "baseline_time_torch.json"
    file.write_text(json.dumps(levels), encoding="utf-8")
    return file


def test_kernelbench_has_times_without_shapes(tmp_path: Path) -> None:
    good = {"mean": 1.5, "std": 0.1, "hardware": "NVIDIA L40S"}
    write_times(tmp_path, {"level1": {"1_matmul.py": good, "2_failed.py": None, "3_odd.py": {"mean": "x", "std": 0}}})
    found = read(tmp_path)
    assert found.samples == ()
    assert found.problems == (kernelbench.ProblemTime("NVIDIA L40S", "torch", "level1", "1_matmul.py", 1500.0, 100.0),)
    assert found.skipped == (("kernelbench: a problem without a time", 2),)


@pytest.mark.parametrize("levels", [[], {"level1": []}, "text"])
def test_other_json_is_refused(tmp_path: Path, levels: Sequence[object]) -> None:
    with pytest.raises(SourceUnavailableError, match="no file of times"):
        read(write_times(tmp_path, levels))


def test_broken_json_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "baseline_time_torch.json"
    for text in ("{", "[" * 100_000):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(SourceUnavailableError, match="cannot be read as JSON"):
            read(tmp_path)
