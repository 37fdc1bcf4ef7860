"""Traces that torch's profiler took of models: at least 95 % of the time is named, by what was really computed.

Eager ones are taken here, now, on the CPU. Those of compiled models lie in ``data/DEVICE`` (compiling takes most of a
minute): ``python tests/gpu/traces.py take OUT --device cpu --small --only compiled``, then ``reduce OUT FOLDER``. What
``take`` and ``reduce`` write on a GPU goes there too, and is held to the same.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from kb.importers.traces.reading import read_trace
from kb.service.profiling import Asked, Traced, from_trace
from tests.gpu import traces

KEPT = sorted((Path(__file__).parent / "data").glob("*/*.json.gz"))
MUST = {
    "qwen-eager": {"gemm", "batched_gemm", "attention_prefill", "softmax", "silu", "sort"},
    "qwen-compiled": {"gemm", "batched_gemm", "attention_prefill", "rmsnorm", "silu_and_mul"},
    "sam-eager": {
        "gemm", "attention_prefill", "layernorm", "groupnorm", "gelu", "conv2d", "conv_transpose2d", "resize_bilinear",
    },
    "sam-compiled": {"gemm", "attention_prefill", "layernorm", "gelu", "conv2d", "conv_transpose2d"},
}  # fmt: skip
"""Operators without which the model was not run so."""


def checked(path: Path, found: Traced) -> None:
    """Hold a target against what its model consists of."""
    rows = found.drafted.target.operators
    assert found.named_share >= traces.NAMED, found.drafted.target.unnamed
    host = sum(row.share or 0 for row in rows if row.operator == "host")
    assert (1 - found.named_share) / (1 - host) <= 1 - traces.NAMED, "of what computes"
    whole = sum(row.share or 0 for row in rows) + sum(one.share for one in found.drafted.target.unnamed)
    assert whole == pytest.approx(1, abs=2e-3)
    assert {row.share_from for row in rows} == {"measured"}
    assert MUST[path.name.removesuffix(".json.gz")] <= {row.operator for row in rows}


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with traces that were taken just now."""
    out = tmp_path_factory.mktemp("traces")
    command = [sys.executable, traces.__file__, "take", str(out), "--device", "cpu", "--small", "--only", "eager"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return out


def test_eager_models_on_this_cpu_are_named(taken: Path) -> None:
    for path in sorted(taken.glob("*.json.gz")):
        found = from_trace(path, Asked(model="taken here"))
        checked(path, found)
        assert found.drafted.target.devices == ["cpu"]
    assert len(list(taken.iterdir())) == 2


def test_shapes_and_calls_are_those_of_the_model(taken: Path) -> None:
    rows = from_trace(taken / "qwen-eager.json.gz", Asked()).drafted.target.operators
    gemms = [row for row in rows if row.operator == "gemm" and row.axes]
    products = {(row.axes["m"], row.axes["n"], row.axes["k"]): row for row in gemms}
    assert products[64, 8, 128].calls_per_step == 1, "the router"
    assert products[64, 256, 128].calls_per_step == 1, "queries and their gates"
    assert products[64, 64, 128].calls_per_step == 2, "keys and values"
    assert sum(row.calls_per_step or 0 for row in gemms) == 5
    (attention,) = [row for row in rows if row.operator == "attention_prefill" and row.axes]
    assert attention.axes == {
        "batch_size": 1, "q_len": 64, "kv_len": 64, "num_heads": 4, "num_kv_heads": 4, "head_dim": 32,
    }  # fmt: skip


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_kept_traces_are_named(path: Path) -> None:
    found = from_trace(path, Asked(model="kept"))
    checked(path, found)
    assert (read_trace(path).device == "cpu") == (path.parent.name == "cpu")


def test_what_is_kept_says_nothing_of_the_machine_it_was_taken_on(taken: Path, tmp_path: Path) -> None:
    assert traces.main(["reduce", str(taken), str(tmp_path / "kept")]) == 0
    for path in sorted((tmp_path / "kept").iterdir()):
        whole, reduced = (from_trace(one, Asked(model="x")) for one in (taken / path.name, path))
        assert reduced.drafted.target.operators == whole.drafted.target.operators
        assert set(path.read_bytes()[4:8]) == {0}, "a date in the head of gzip"
    assert len(KEPT) >= 2
    assert all(path.stat().st_size < 200_000 for path in KEPT)


def test_targets_of_a_folder_are_written_and_their_shares_said(
    taken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert traces.main(["reduce", str(taken), str(tmp_path)]) == 0
    assert traces.main(["read", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("us named") == 2
    assert len(list((tmp_path / "targets").glob("target/*/*/entry.toml"))) == 2
