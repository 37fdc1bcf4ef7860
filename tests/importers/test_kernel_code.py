"""Kernels are found by syntax, with what they need and no more, and called an operator only where all of it fits."""

import ast
import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from kb.errors import SourceFormatError
from kb.importers.code import cuda_text, mapping, notices, triton_text
from kb.importers.code.parts import Kernel
from kb.importers.tree import Origin, open_tree
from kb.service.importing import Report
from kb.validators.operators import NAMES

HEAD = "import torch\nimport triton\nimport triton.language as tl\nfrom .helpers import exp\n\n\n"
RMSNORM = '''
LIMIT = 4

if __name__ == "__main__":
    x_ptr = 3


@triton.jit
def _square_mean(x, n):
    return tl.sum(x * x, axis=0) / n


@triton.autotune(
    configs=[triton.Config({"BLOCK": b}, num_warps=w) for b in [256, 512] for w in (4, LIMIT * 1)],
    key=["n"],
)
@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    """Normalises rows."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=0.0)
    r = tl.rsqrt(_square_mean(x, n) + eps)
    tl.store(y_ptr + row * n + at, x * r * tl.load(w_ptr + at, mask=at < n), mask=at < n)


def rms_norm(x, w, eps=1e-6):
    y = torch.empty_like(x)
    rms_norm_kernel[(x.shape[0],)](x, w, y, x.shape[-1], eps)
    return y


def unrelated():
    return LIMIT
'''


def one(text: str, head: str = HEAD) -> Kernel:
    (found,) = triton_text.kernels_of(head + text)
    return found


def meaning(kernel: Kernel, path: str = "ops/x.py") -> mapping.Meaning:
    return mapping.meaning_of(kernel, path)


def test_a_kernel_comes_with_its_helpers_constants_and_launcher_and_nothing_else() -> None:
    kernel = one(RMSNORM)
    assert (kernel.name, kernel.helpers, kernel.launchers) == (
        "rms_norm_kernel",
        ("LIMIT", "_square_mean"),
        ("rms_norm",),
    )
    assert "unrelated" not in kernel.text
    assert "__main__" not in kernel.text
    assert "helpers" not in kernel.text
    ast.parse(kernel.text)
    kinds = {each.name: each.kind for each in kernel.parameters}
    assert kinds == {
        "x_ptr": "pointer", "w_ptr": "pointer", "y_ptr": "pointer", "n": "scalar", "eps": "scalar", "BLOCK": "constant",
    }  # fmt: skip


def test_configurations_are_read_where_they_are_values_and_kept_as_text_where_not() -> None:
    kernel = one(RMSNORM.replace("LIMIT * 1", "8"))
    assert kernel.configs == {
        "key": ["n"],
        "configs": [{"kwargs": {"BLOCK": b}, "num_warps": w} for b in (256, 512) for w in (4, 8)],
        "complete": True,
    }
    computed = one(RMSNORM).configs
    assert computed is not None
    assert (computed["complete"], computed["configs"]) == (False, [])
    assert "LIMIT * 1" in str(computed["text"])
    endless = one(RMSNORM.replace("[256, 512]", "range(4000) for c in range(4000)")).configs
    assert endless is not None
    assert endless["complete"] is False
    looped = one("A = B\nB = A\n" + RMSNORM.replace("configs=[triton.Config", "configs=A or [triton.Config")).configs
    assert looped is not None
    assert looped["complete"] is False


def test_a_mapped_kernel_fits_by_name_body_and_signature() -> None:
    found = meaning(one(RMSNORM))
    assert (found.operator, found.confidence) == ("rmsnorm", 0.95)
    assert meaning(one(RMSNORM.replace("rms_norm", "mystery"))).operator is None
    assert meaning(one(RMSNORM.replace("rms_norm", "mystery")), "ops/rms_norm.py").operator == "rmsnorm"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.rsqrt(_square_mean(x, n) + eps)", "_square_mean(x, n) + eps"),  # another body
        ("x * x", "x"),
        ("w_ptr, y_ptr, n, eps", "w_ptr, y_ptr, n, eps, residual_ptr"),  # another signature
        ("eps", "k"),
        ("rms_norm_kernel", "rms_norm_bwd_kernel"),  # a backward pass
        ("y_ptr", "dx_ptr"),
        ("x * r *", "(x - tl.sum(x) / n) * r *"),  # a mean is taken off
        ("rms_norm_kernel", "rms_norm_stats_kernel"),
    ],
)
def test_a_kernel_that_differs_in_body_or_signature_is_not_mapped_but_its_nearest_is_named(old: str, new: str) -> None:
    found = meaning(one(RMSNORM.replace(old, new)))
    assert found.operator is None
    assert found.part_of is None
    assert found.confidence < mapping.SURE
    assert found.nearest == "rmsnorm"


def test_comments_names_of_files_and_layout_do_not_make_another_kernel() -> None:
    other = RMSNORM.replace('    """Normalises rows."""\n', "    # rows\n").replace(
        "at = tl.arange(0, BLOCK)", "at = tl.arange(\n        0, BLOCK\n    )"
    )
    assert one(other).normal == one(RMSNORM).normal
    assert one(RMSNORM.replace("x * x", "x + x")).normal != one(RMSNORM).normal


def test_a_helper_is_no_kernel_and_a_method_can_launch_one() -> None:
    text = HEAD + (
        "@triton.jit\ndef add(x, y):\n    return x + y\n\n\n"
        "@triton.jit\ndef put(p, v):\n    tl.store(p, v)\n\n\n"
        "@triton.jit(do_not_specialize=['n'])\ndef k(p, n):\n    put(p, add(n, exp(n)))\n\n\n"
        "class F:\n    def forward(self, p):\n        k[(1,)](p, 1)\n"
    )
    (kernel,) = triton_text.kernels_of(text)
    assert (kernel.name, kernel.launchers, kernel.elsewhere) == ("k", ("forward",), (".helpers.exp",))


CUDA = """// Copyright (c) 2024 The Authors
#include <cuda_bf16.h>
#include "common.h"

namespace ops {
constexpr int WARP = 32;
constexpr int UNUSED = 7;
#define TILE 16

template <typename T>
__device__ __forceinline__ T load(const T *p) { return *p; }

__device__ float unused(float x) { return x; }

/* a __global__ in a comment is none */
template <int B, typename T>
__global__ __cluster_dims__(2, 1, (1)) __launch_bounds__(B * 2)
void matmul_kernel(const T *__restrict__ A, const T *__restrict__ B_, float *C, int M, int N, int K) {
  const char *text = "__global__ void no(";
  float sum = 0;
  for (int k = 0; k < K; k += TILE)
    sum += float(load(A + threadIdx.x * K + k)) * float(B_[k * N + threadIdx.y]);
  C[threadIdx.x % WARP] = sum;
}

void matmul(const float *A, const float *B, float *C, int M, int N, int K) {
  matmul_kernel<32, float><<<dim3(M / 32), 64>>>(A, B, C, M, N, K);
}
}  // namespace ops
"""


def test_a_cuda_kernel_comes_with_its_device_functions_constants_and_launcher() -> None:
    (kernel,) = cuda_text.kernels_of(CUDA)
    assert (kernel.name, kernel.language, kernel.launchers) == ("matmul_kernel", "cuda", ("matmul",))
    assert set(kernel.helpers) == {"load", "WARP", "TILE"}
    assert "unused" not in kernel.text
    assert "UNUSED" not in kernel.text
    assert "matmul_kernel<32, float><<<" in kernel.text
    assert "common.h" in kernel.elsewhere
    assert [each.name for each in kernel.parameters if each.kind == "pointer"] == ["A", "B_", "C"]
    assert meaning(kernel, "csrc/matmul.cu").operator == "gemm"
    assert meaning(kernel, "csrc/fused_attention_matmul.cu").operator is None
    (other,) = cuda_text.kernels_of(CUDA.replace("float sum = 0;", "float sum = 0; // zero\n"))
    assert other.normal == kernel.normal


def test_a_hip_kernel_is_called_one(tmp_path: Path, run: Callable[..., Report]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/k.hip").write_text(CUDA, encoding="utf-8")
    run(tmp_path / "in", stated=(None, None, "MIT"))
    (facts,) = (tmp_path / "base/entries").rglob("entry.toml")
    assert tomllib.loads(facts.read_text(encoding="utf-8"))["language"] == "hip"


@pytest.mark.parametrize(
    "text",
    [
        "import triton\n@triton.jit\ndef k(:\n",
        "import triton  # jit\nx = " + "(" * 5000 + ")" * 5000,
        "import triton  # jit\nx = " + "-" * 100_000 + "1",
        "import triton  # jit\nx = a" + ".b" * 9000,
        "import triton  # jit\nx = " + " + ".join(["1"] * 4000),
        "import triton  # jit\nx = '" + "a" * 50_000 + "'",
        "import triton  # jit\n" + "".join(f"{' ' * n}if x:\n" for n in range(99)) + " " * 99 + "pass\n",
        "import triton  # jit\nx = 1\0",
        "import triton  # jit\nx = " + "9" * 6000 + "\n",
    ],
    ids=["syntax", "brackets", "signs", "attributes", "sum", "line", "indentation", "nul", "digits"],
)
def test_hostile_python_is_refused_or_has_no_kernel(text: str) -> None:
    try:
        assert list(triton_text.kernels_of(text)) == []
    except SourceFormatError as error:
        assert error.message.startswith("expected")  # noqa: PT017 - either outcome is right


@pytest.mark.parametrize(
    "text",
    [
        "__global__ void k(" + "(" * 5000,
        "__global__ void k() {" + "{" * 300 + "}" * 300 + "}",
        "__global__ void k(int a) { x = " + "a" * 30_000 + "; }",
        "__global__ void k(int a) {\n",
        "__global__",
        "#define __global__ x\n__global__ __global__ __global__ ((",
        "template <template <template <int> typename> typename T> __global__ void k() {}",
    ],
)
def test_hostile_cuda_is_refused_or_read(text: str) -> None:
    try:
        assert len(list(cuda_text.kernels_of(text))) <= 1
    except SourceFormatError as error:
        assert error.message.startswith("expected")  # noqa: PT017 - either outcome is right


def test_rules_name_operators_that_there_are_and_words_that_bodies_have() -> None:
    rules = mapping.rules()
    assert {rule.operator for rule in rules} <= set(NAMES)
    words = {word for rule in rules for group in (*rule.body, rule.without) for word in group}
    from kb.importers.code import cuda_features, triton_features

    derived = {
        "square",
        "times",
        "plus",
        "minus",
        "divide",
        "negative",
        "mean_sub",
        "max_sub",
        "reciprocal_sqrt",
        "loop",
    }
    derived |= {"fp8", "int8", "silu", "sigmoid", "sum", "load", "store", "maximum"}
    known = derived | {word for _, word in triton_features._CALLS} | {word for _, word in cuda_features._WORDS}
    assert words <= known


def test_drafts_of_a_folder_are_unverified_and_documented(tmp_path: Path, run: Callable[..., Report]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/rms_norm.py").write_text(HEAD + RMSNORM.replace("LIMIT * 1", "8"), encoding="utf-8")
    (tmp_path / "in/plain.py").write_text("x = 1\n", encoding="utf-8")
    report = run(tmp_path / "in", stated=("owner/ops", "abc", "Apache-2.0"))
    (line,) = (line for line in report.lines if line.id)
    assert (line.id, line.evidence) == ("technique/rmsnorm/rms-norm-kernel-rms-norm", "documented")
    assert [line.state for line in report.lines if line.path == "plain.py"] == ["left"]
    folder = tmp_path / "base/entries" / str(line.id)
    facts = tomllib.loads((folder / "entry.toml").read_text(encoding="utf-8"))
    assert (facts["operator"], facts["language"]) == ("rmsnorm", "triton")
    assert "unverified" in facts["tags"]
    assert "claims" not in facts
    assert len(json.loads((folder / "autotune.json").read_text(encoding="utf-8"))["configs"]) == 4


def test_notices_of_copyright_are_kept_and_the_license_text_goes_along(tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_bytes(b"MIT License\n\nPermission is hereby granted, free of charge\n")
    tree = open_tree(tmp_path, Origin("r", ""))
    assert notices.texts(tree, "a/b.py", "MIT") == {
        "LICENSE.txt": b"MIT License\n\nPermission is hereby granted, free of charge\n"
    }
    assert notices.texts(tree, "a/b.py", "Apache-2.0") == {}
    assert notices.license_of(tree, "b.py", b"# Apache-2.0\n") == "MIT-0 AND Apache-2.0"
