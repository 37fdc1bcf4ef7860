"""Tuners' caches and measured tables: units, failed configurations, zeros, and nothing that is made up."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kb.errors import SourceFormatError
from kb.importers import registry
from kb.importers.base import Context, Draft, Folder, Skipped
from kb.importers.tree import Origin, open_tree

HEAD = "framework,version,device,op_name,kernel_source"
ROW = "VLLM,1.0.0,NVIDIA H200"
H200 = Context(device="NVIDIA H200", toolchain={"triton": "3.6.0"})


def parsed(place: Path, name: str, context: Context | None = None) -> Iterator[Draft | Skipped]:
    importer = registry.importer(name)
    tree = open_tree(place, Origin("tests", "", license="MIT"))
    for listing in tree.walk():
        for item in importer.discover(Folder(tree, listing.path, listing.files)):
            yield from importer.parse(item, context or Context())


def table(place: Path, name: str, columns: str, *rows: str) -> list[Draft | Skipped]:
    text = "\n".join([f"{HEAD},{columns}", *(f"{ROW},{row}" for row in rows), ""])
    (place / name).write_text(text, encoding="utf-8")
    return list(parsed(place, "aiconfigurator"))


def figures(found: list[Draft | Skipped]) -> list[tuple[str, float]]:
    return [
        (claim["metric"], claim["value"]) for one in found if isinstance(one, Draft) for claim in one.facts["claims"]
    ]


def test_milliseconds_become_microseconds_and_the_table_keeps_its_own(tmp_path: Path) -> None:
    found = table(tmp_path, "gemm_perf.csv", "gemm_dtype,m,n,k,latency", "gemm,lin,bfloat16,1,2048,2048,0.0125")
    assert figures(found) == [("latency_us", 12.5)]
    draft = found[0]
    assert isinstance(draft, Draft)
    assert b"0.0125" in draft.files["rows.csv"]
    assert draft.evidence == "reported"
    assert draft.facts["operator"] == "gemm"
    assert "speedup" not in json.dumps(draft.facts)


def test_the_columns_of_a_table_tell_its_unit(tmp_path: Path) -> None:
    assert figures(table(tmp_path, "a_perf.csv", "num_token,avg_ms", "mlp,x,1,0.04")) == [("latency_us", 40.0)]
    (tmp_path / "a_perf.csv").unlink()
    found = table(tmp_path, "ll_perf.csv", "num_token,combine_avg_t_us,dispatch_avg_t_us", "ll,deepep,1,10.5,8.8")
    assert figures(found) == [("combine_latency_us", 10.5), ("dispatch_latency_us", 8.8)]
    (tmp_path / "ll_perf.csv").unlink()
    found = table(tmp_path, "moe_a2a_perf.csv", "num_tokens,transmit_us,latency", "moe_a2a,deepep,16,98.5,98.5")
    assert figures(found) == [("latency_us", 98.5)]


@pytest.mark.parametrize(
    ("name", "columns", "row"),
    [
        ("moe_a2a_perf.csv", "num_tokens,transmit_us,latency", "moe_a2a,deepep,16,98.5,0.0985"),
        ("moe_a2a_perf.csv", "num_tokens,latency", "moe_a2a,deepep,16,98.5"),
        ("gemm_perf.csv", "m,latency", "gemm,lin,1,12500000"),
        ("gemm_perf.csv", "m,latency", "gemm,lin,1,-1"),
        ("gemm_perf.csv", "m,latency", "gemm,lin,1,inf"),
        ("gemm_perf.csv", "m,latency", "gemm,lin,1,nan"),
        ("gemm_perf.csv", "m,latency", "gemm,lin,1,fast"),
        ("gemm_perf.csv", "m,throughput", "gemm,lin,1,3"),
        ("gemm_perf.csv", "m,m,latency", "gemm,lin,1,1,3"),
        ("gemm_perf.csv", "m,latency", "gemm,lin,1"),
    ],
)
def test_a_table_whose_unit_or_form_is_in_doubt_is_refused(tmp_path: Path, name: str, columns: str, row: str) -> None:
    with pytest.raises(SourceFormatError):
        table(tmp_path, name, columns, row)


def test_a_latency_of_zero_is_no_measurement(tmp_path: Path) -> None:
    found = table(tmp_path, "gemm_perf.csv", "m,latency", "gemm,a,1,0.0", "gemm,a,2,0.01", "gemm,b,1,0.0")
    assert figures(found) == [("latency_us", 10.0)]
    assert [one.path for one in found if isinstance(one, Skipped)] == ["gemm_perf.csv#VLLM 1.0.0 NVIDIA H200 gemm b"]
    assert "1 rows with a latency of 0" in next(one.readme for one in found if isinstance(one, Draft))


def test_shards_and_elements_are_warned_of(tmp_path: Path) -> None:
    found = table(tmp_path, "nccl_perf.csv", "num_gpus,message_size,latency", "all_gather,NCCL,2,256,0.005")
    assert "counts elements, not bytes" in next(one.readme for one in found if isinstance(one, Draft))
    (tmp_path / "nccl_perf.csv").unlink()
    found = table(tmp_path, "gdn_perf.csv", "num_v_heads,model_name,latency", "gdn,chunk_gated_delta_rule,32,m,0.1")
    assert "Shards of one model" in next(one.readme for one in found if isinstance(one, Draft))


def test_parquet_gives_what_csv_gives(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    names = [*HEAD.split(","), "m", "latency"]
    values = [*ROW.split(","), "gemm", "lin", 1, 0.0125]
    made = arrow.table({name: [value] for name, value in zip(names, values, strict=True)})
    (tmp_path / "data").mkdir()
    parquet.write_table(made, tmp_path / "data" / "gemm_perf.parquet")
    found = list(parsed(tmp_path, "aiconfigurator"))
    assert figures(found) == [("latency_us", 12.5)]
    body = (tmp_path / "data" / "gemm_perf.parquet").read_bytes()
    for broken in (body[: len(body) // 2], b"PAR1" + b"\xff" * 200 + b"PAR1", b""):
        (tmp_path / "data" / "gemm_perf.parquet").write_bytes(broken)
        with pytest.raises(SourceFormatError):
            list(parsed(tmp_path, "aiconfigurator"))


TRITON: dict[str, Any] = {
    "key": ["4096", "torch.bfloat16"],
    "configs_timings": [
        [{"kwargs": {"BLOCK_M": 128}, "num_warps": 8}, [0.2, 0.19, 0.21]],
        [{"kwargs": {"BLOCK_M": 64}, "num_warps": 4}, [0.1, 0.09, 0.11]],
    ],
}
FAILED = [{"kwargs": {"BLOCK_M": 256}, "num_warps": 4}, [float("inf")] * 3]


def test_tritons_cache_gives_the_fastest_on_the_device_that_was_stated(tmp_path: Path) -> None:
    raw = {**TRITON, "configs_timings": [*TRITON["configs_timings"], FAILED]}
    (tmp_path / "matmul_kernel.autotune.json").write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(SourceFormatError, match="--device"):
        list(parsed(tmp_path, "triton-autotune"))
    found = list(parsed(tmp_path, "triton-autotune", H200))
    assert figures(found) == [("latency_us", 100.0)]
    draft = found[0]
    assert isinstance(draft, Draft)
    assert json.loads(draft.files["config.json"])["configs_timings"][2][1] == [None] * 3
    assert draft.files["autotune.txt"] == (tmp_path / "matmul_kernel.autotune.json").read_bytes()
    assert draft.facts["tuned"]["toolchain"] == {"triton": "3.6.0"}


@pytest.mark.parametrize("times", [[0.0, 0.1, 0.1], [-1.0], [], ["1"], [1e9], [True]])
def test_tritons_timings_must_be_times(tmp_path: Path, times: list[object]) -> None:
    raw = {"key": ["1"], "configs_timings": [[{"num_warps": 4}, times]]}
    (tmp_path / "k.autotune.json").write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(SourceFormatError):
        list(parsed(tmp_path, "triton-autotune", H200))


def test_constructed_samples_are_never_results(tmp_path: Path) -> None:
    (tmp_path / "k.autotune.json").write_text(json.dumps(TRITON), encoding="utf-8")
    (tmp_path / "README.md").write_text("# CONSTRUCTED samples, not collected\n", encoding="utf-8")
    found = list(parsed(tmp_path, "triton-autotune", H200))
    assert [one.reason for one in found if isinstance(one, Skipped)] == [
        "the readme beside it says that it is constructed, not collected"
    ]


@pytest.mark.parametrize("key", ["__import__('os').system('true')", "('a', " * 300, "1", "()", "(1, 2)", "['a']"])
def test_flashinfers_keys_are_literals_and_never_run(tmp_path: Path, key: str) -> None:
    raw = {"_metadata": {"flashinfer_version": "1", "gpu": "NVIDIA H200"}, key: ["R", 1]}
    (tmp_path / "f.json").write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(SourceFormatError):
        list(parsed(tmp_path, "flashinfer-autotune"))


def test_flashinfers_versions_are_the_toolchain(tmp_path: Path) -> None:
    raw = {
        "_metadata": {"flashinfer_version": "0.5.3", "gpu": "NVIDIA H200"},
        "('fp4_gemm', 'R', ((1, 2),))": ["R", -1],
    }
    (tmp_path / "f.json").write_text(json.dumps(raw), encoding="utf-8")
    draft = next(iter(parsed(tmp_path, "flashinfer-autotune")))
    assert isinstance(draft, Draft)
    assert draft.facts["tuned"]["toolchain"] == {"flashinfer": "0.5.3"}
    assert "1 of 1 entries are the fallback" in draft.readme


VALIDATORS = "Validator,PT_VERSION,2.8.0\nValidator,GCN_ARCH_NAME,gfx942:sramecc+\n"


def test_tunableop_names_an_architecture_and_gives_figures_only_for_a_device(tmp_path: Path) -> None:
    row = "GemmTunableOp_BFloat16_TN,tn_4096_16_2048,Gemm_Hipblaslt_1,0.0126\n"
    (tmp_path / "t.csv").write_text(VALIDATORS + row, encoding="utf-8")
    draft = next(iter(parsed(tmp_path, "tunableop")))
    assert isinstance(draft, Draft)
    assert draft.facts["requires"]["arch"] == ["gfx942"]
    assert draft.evidence == "documented"
    found = list(parsed(tmp_path, "tunableop", Context(device="AMD Instinct MI300X")))
    assert figures(found) == [("latency_us", 12.6)]
    with pytest.raises(SourceFormatError, match="gfx942"):
        list(parsed(tmp_path, "tunableop", H200))


@pytest.mark.parametrize("rows", ["", "A,b,c,1\n", "XTunableOp_a,b,c,-1\n", "XTunableOp_a,b,c,1\nXTunableOp_a,b,d,1\n"])
def test_what_is_no_tunableop_file_is_refused(tmp_path: Path, rows: str) -> None:
    (tmp_path / "t.csv").write_text(VALIDATORS + rows, encoding="utf-8")
    with pytest.raises(SourceFormatError):
        list(parsed(tmp_path, "tunableop"))
