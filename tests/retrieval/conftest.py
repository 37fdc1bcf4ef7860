"""A small knowledge base, indexed for real."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from kb.catalogue import open_reader
from kb.config import Root
from kb.service.indexing import ensure_index

_COMMON = 'schema = 1\nversion = 1\nlicense = "Apache-2.0"\n'
_SOURCE = '\n[source]\norigin = "written here"\n'

ENTRIES: dict[str, str] = {
    "kernel/moe_grouped_gemm_nvfp4/in-register": """
title = "NVFP4 MoE grouped GEMM, weights decoded in registers"
summary = "Runs wherever bf16 matrix units are; e2m1 is decoded by shifts."
outcome = "works"
operator = "moe_grouped_gemm_nvfp4"
language = "triton"
entry_point = "kernel.py:run"
dtypes = ["nvfp4", "bfloat16"]
tags = ["moe", "decode"]
[requires]
arch = ["sm_90", "sm_100"]
features = ["bf16_mma"]
""",
    "kernel/moe_grouped_gemm_nvfp4/native": """
title = "NVFP4 MoE grouped GEMM on FP4 matrix units"
summary = "Four times the matrix rate of bf16 where the units exist."
outcome = "works"
operator = "moe_grouped_gemm_nvfp4"
language = "triton"
entry_point = "kernel.py:run"
dtypes = ["nvfp4"]
tags = ["moe"]
[requires]
arch = ["sm_100"]
features = ["fp4_mma"]
""",
    "kernel/rmsnorm/row": """
title = "RMSNorm, one CTA a row"
summary = "Keeps the row in registers, so x is read once."
outcome = "works"
operator = "rmsnorm"
language = "triton"
entry_point = "kernel.py:run"
dtypes = ["bfloat16", "float16"]
[requires]
arch = ["sm_90"]
""",
    "kernel/rmsnorm/old": """
title = "RMSNorm with atomics"
summary = "Superseded; kept for its evidence."
outcome = "works"
operator = "rmsnorm"
language = "triton"
entry_point = "kernel.py:run"
dtypes = ["bfloat16"]
[requires]
arch = ["sm_90"]
[withdrawn]
date = 2026-11-30
reason = "races on ties"
""",
    "technique/softmax/two-pass": """
title = "Two-pass softmax at short rows"
summary = "Slower than one pass whenever the row fits in registers."
outcome = "regression"
operator = "softmax"
[negative]
hypothesis = "two passes save registers"
condition = "rows below 4096"
effect = "30 % slower"
""",
    "campaign/some-model/run": """
title = "Some model in NVFP4 on one B200 against vLLM"
summary = "Single-stream decode above the baseline, as published."
outcome = "works"
tags = ["vllm", "single-stream"]
[campaign]
target = "target/some-model/b200"
baseline = "vLLM 0.25.1"
[[claims]]
metric = "decode_tokens_per_s"
value = 1792
unit = "tokens/s"
better = "higher"
device = "NVIDIA B200"
workload = "single stream"
baseline = "vLLM 0.25.1"
baseline_value = 943
source = "published"
""",
}


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("base")
    for entry_id, body in ENTRIES.items():
        folder = root / "entries" / entry_id
        folder.mkdir(parents=True)
        (folder / "entry.toml").write_text(_COMMON + body + _SOURCE, encoding="utf-8")
        (folder / "README.md").write_text(f"# {entry_id}\n\nProse about it.\n", encoding="utf-8")
        if "entry_point" in body:
            (folder / "kernel.py").write_text("def run(x):\n    return x\n", encoding="utf-8")
    return root


@pytest.fixture(scope="session")
def catalogue_file(base: Path) -> Path:
    return ensure_index(Root(base))


@pytest.fixture
def connection(catalogue_file: Path) -> Iterator[sqlite3.Connection]:
    reader = open_reader(catalogue_file)
    yield reader
    reader.close()
