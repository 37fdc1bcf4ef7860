"""Specs of norms, activations, RoPE, KV append and FP8 quantisers say what they should and refuse what they must."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from kb.validators import operators
from kb.validators.operators.spec import DTYPES, Arguments, Operator, Workload, generator
from kb.validators.runtime.compare import compare_call

FAMILY = (
    "fused_add_rmsnorm",
    "gated_rmsnorm",
    "gelu",
    "gemm_bias_gelu",
    "groupnorm",
    "kv_append",
    "l2norm",
    "layernorm",
    "quantize_fp8",
    "rmsnorm",
    "rmsnorm_quantize_fp8",
    "rope",
    "rope_2d",
    "rope_kv_append",
    "sigmoid_mul",
    "silu",
    "silu_and_mul",
    "silu_and_mul_quantize",
    "softmax",
)
ROUNDING = tuple(name for name in FAMILY if name != "kv_append")


def workloads(name: str, *, least: int = 100) -> list[Workload]:
    """Return the awkward, non-empty workloads whose largest output has at least ``least`` elements."""
    spec = operators.load(name)
    return [
        w
        for w in spec.workloads
        if w.use == "awkward"
        and w.axes.get("num_tokens", w.axes.get("batch_size", 0))
        and max(t.numel() for t in spec.reference(*draw(spec, w))) >= least
    ]


def draw(spec: Operator, workload: Workload, *, seed: int = 3) -> Arguments:
    """Draw the arguments of one call."""
    return spec.laws[workload.law](workload.axes, workload.dtype, generator(seed))


def find(name: str, *, dtype: str, law: str) -> tuple[Operator, Workload, Arguments]:
    """Return an operator, its largest awkward workload of that dtype and law, and drawn arguments."""
    spec = operators.load(name)
    found = [w for w in workloads(name) if w.dtype == dtype and w.law == law]
    workload = max(found, key=lambda w: math.prod(w.axes.values()))
    return spec, workload, draw(spec, workload)


def stored(spec: Operator, results: tuple[torch.Tensor, ...], dtype: str) -> tuple[torch.Tensor, ...]:
    """Round float64 results once, to the dtypes of the operator's outputs."""
    names = [dtype if b.dtype == "data" else b.dtype for b in spec.outputs]
    return tuple(r.to(DTYPES[name]) for r, name in zip(results, names, strict=True))


def verdicts(spec: Operator, arguments: Arguments, results: tuple[torch.Tensor, ...], dtype: str) -> list[str]:
    """Return the verdict of each output after one rounding."""
    return [c.verdict for c in compare_call(spec, arguments, stored(spec, results, dtype), dtype=dtype)]


def tensors(arguments: Arguments) -> list[torch.Tensor]:
    """Return the tensors among the arguments, in order."""
    return [a for a in arguments if isinstance(a, torch.Tensor)]


def rounded(value: object, dtype: torch.dtype) -> object:
    """Round a floating tensor to a narrower dtype and back; leave anything else."""
    if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype.itemsize > 1:
        return value.to(torch.float32).clamp(-448, 448).to(dtype).to(value.dtype)
    return value


@pytest.mark.parametrize("name", FAMILY)
def test_the_reference_rounded_once_is_accepted_and_zeros_are_not(name: str) -> None:
    spec = operators.load(name)
    for workload in workloads(name, least=1):
        arguments = draw(spec, workload)
        expected = spec.reference(*arguments)
        assert set(verdicts(spec, arguments, expected, workload.dtype)) == {"passed"}
        for index in (i for i, r in enumerate(expected) if r.numel()):
            forged = tuple(torch.zeros_like(r) if i == index else r for i, r in enumerate(expected))
            assert verdicts(spec, arguments, forged, workload.dtype)[index] == "wrong_values"


@pytest.mark.parametrize("name", ROUNDING)
def test_inputs_rounded_one_precision_lower_are_refused(name: str) -> None:
    spec = operators.load(name)
    for workload in workloads(name):
        lower = torch.bfloat16 if workload.dtype == "float32" else torch.float8_e4m3fn
        arguments = draw(spec, workload)
        changed = [rounded(a, lower) for a in arguments]
        if all(torch.equal(a, b) for a, b in zip(tensors(arguments), tensors(tuple(changed)), strict=True)):
            continue  # a law of few bits
        cheap = spec.reference(*changed)
        assert "wrong_values" in verdicts(spec, arguments, cheap, workload.dtype), workload


@pytest.mark.parametrize("name", FAMILY)
def test_handing_back_an_input_is_refused(name: str) -> None:
    spec = operators.load(name)
    for workload in (w for w in workloads(name) if w.law != "skipped"):
        arguments = draw(spec, workload)
        expected = spec.reference(*arguments)
        given = tensors(arguments)
        for index, want in enumerate(expected):
            for same in (t for t in given if t.shape == want.shape):
                forged = tuple(same.to(torch.float64) if i == index else r for i, r in enumerate(expected))
                assert verdicts(spec, arguments, forged, workload.dtype)[index] == "wrong_values"


def test_references_agree_with_torch_in_float64() -> None:
    def wide(name: str, law: str = "normal") -> tuple[Operator, list[object]]:
        spec, _, arguments = find(name, dtype="float32", law=law)
        return spec, [a.to(torch.float64) if isinstance(a, torch.Tensor) else a for a in arguments]

    for name, call in {
        "silu": F.silu,
        "softmax": lambda x: torch.softmax(x, -1),
        "gelu": lambda x, tanh: F.gelu(x),
        "layernorm": lambda x, w, b, eps: F.layer_norm(x, x.shape[-1:], w, b, eps),
        "groupnorm": lambda x, w, b, groups, eps: F.group_norm(x, groups, w, b, eps),
        "rmsnorm": lambda x, w, eps: F.rms_norm(x, x.shape[-1:], w, eps),
        "fused_add_rmsnorm": lambda x, r, w, eps: F.rms_norm(x + r, x.shape[-1:], w, eps),
        "gated_rmsnorm": lambda x, g, w, eps: F.rms_norm(x, x.shape[-1:], w, eps) * F.silu(g),
        "l2norm": lambda x, eps: F.rms_norm(x, x.shape[-1:], None, eps / x.shape[-1]) / math.sqrt(x.shape[-1]),
        "sigmoid_mul": lambda x, g: x * torch.sigmoid(g),
        "silu_and_mul": lambda x: F.silu(x[:, : x.shape[1] // 2]) * x[:, x.shape[1] // 2 :],
        "gemm_bias_gelu": lambda x, w, b, tanh: F.gelu(F.linear(x, w, b)),
    }.items():
        spec, arguments = wide(name)
        formula: Any = call
        torch.testing.assert_close(spec.reference(*arguments)[0], formula(*arguments), rtol=1e-10, atol=1e-13)
    spec, arguments = wide("gelu", "tanh_form")
    x = arguments[0]
    assert isinstance(x, torch.Tensor)
    torch.testing.assert_close(spec.reference(x, 1)[0], F.gelu(x, approximate="tanh"), rtol=1e-10, atol=1e-13)


def test_float32_moments_by_squares_are_refused_where_the_mean_is_large() -> None:
    spec, workload, arguments = find("layernorm", dtype="float32", law="offset")
    x, weight, bias = tensors(arguments)
    eps = 1e-6
    mean = x.mean(-1, keepdim=True)
    variance = (x.square().mean(-1, keepdim=True) - mean.square()).clamp(min=0)
    y = (x - mean) * torch.rsqrt(variance + eps) * weight + bias
    assert verdicts(spec, arguments, (y.to(torch.float64),), workload.dtype) == ["wrong_values"]
    honest = F.layer_norm(x, x.shape[-1:], weight, bias, eps)
    assert verdicts(spec, arguments, (honest.to(torch.float64),), workload.dtype) == ["passed"]


def test_a_dropped_or_swapped_term_is_refused() -> None:
    def refused(name: str, dtype: str, law: str, *forged: object, output: int = 0) -> None:
        spec, workload, arguments = find(name, dtype=dtype, law=law)
        changed = [f if f is not None else a for f, a in zip(forged, arguments, strict=True)]
        assert verdicts(spec, arguments, spec.reference(*changed), workload.dtype)[output] == "wrong_values"

    _, residual, weight = tensors(find("fused_add_rmsnorm", dtype="bfloat16", law="normal")[2])
    refused("fused_add_rmsnorm", "bfloat16", "normal", None, torch.zeros_like(residual), None, None)
    refused("fused_add_rmsnorm", "bfloat16", "normal", None, torch.zeros_like(residual), None, None, output=1)
    refused("fused_add_rmsnorm", "bfloat16", "normal", None, None, torch.ones_like(weight), None)
    (x,) = tensors(find("silu_and_mul", dtype="bfloat16", law="normal")[2])
    refused("silu_and_mul", "bfloat16", "normal", x.roll(x.shape[1] // 2, 1))
    refused("gelu", "float32", "normal", None, 1)
    refused("gelu", "float32", "tanh_form", None, 0)
    refused("gemm_bias_gelu", "float32", "normal", None, None, torch.zeros(()), None)
    refused("l2norm", "float32", "normal", None, 0.0)


def test_gelu_after_a_bfloat16_rounding_of_the_product_is_refused() -> None:
    spec, workload, arguments = find("gemm_bias_gelu", dtype="bfloat16", law="normal")
    x, weight, bias = (t.to(torch.float64) for t in tensors(arguments))
    z = F.linear(x, weight, bias)
    assert verdicts(spec, arguments, (F.gelu(z),), workload.dtype) == ["passed"]
    early = F.gelu(z.to(torch.bfloat16).to(torch.float64))
    assert verdicts(spec, arguments, (early,), workload.dtype) == ["wrong_values"]


@pytest.mark.parametrize("name", ["quantize_fp8", "rmsnorm_quantize_fp8", "silu_and_mul_quantize"])
def test_fp8_must_be_rounded_to_nearest_and_scales_be_exact(name: str) -> None:
    spec, workload, arguments = find(name, dtype="bfloat16", law="normal")
    q, scale = spec.reference(*arguments)
    step = torch.exp2(q.abs().clamp(min=2.0**-6).log2().floor() - 3)
    truncated = (q / step).trunc() * step
    assert verdicts(spec, arguments, (truncated, scale), workload.dtype) == ["wrong_values", "passed"]
    assert verdicts(spec, arguments, (q, scale * (1 + 2.0**-10)), workload.dtype) == ["passed", "wrong_values"]
    power = torch.exp2(scale.log2().ceil())
    assert verdicts(spec, arguments, (q * (scale / power)[:, None], power), workload.dtype) == ["wrong_values"] * 2


def test_fp8_ties_may_fall_either_way() -> None:
    spec = operators.load("quantize_fp8")
    x = torch.tensor([[448.0, 17.0, 19.0, 1.0625]])  # scale 1; 17 and 19 lie between 16, 18 and 20
    for choice in ([448.0, 16.0, 20.0, 1.0], [448.0, 18.0, 18.0, 1.125]):
        assert verdicts(spec, (x,), (torch.tensor([choice]), torch.ones(1)), "float32") == ["passed", "passed"]


def test_rope_turns_half_split_pairs_and_nothing_beyond_rotary_dim() -> None:
    spec, workload, arguments = find("rope", dtype="bfloat16", law="fused_qkv")
    q, k, table, positions = tensors(arguments)
    q_out, _ = spec.reference(*arguments)
    half = table.shape[1] // 2
    assert torch.equal(q_out[..., 2 * half :], q[..., 2 * half :].to(torch.float64))
    angles = table.to(torch.float64)[positions]
    turned = torch.complex(q[..., :half].double(), q[..., half : 2 * half].double()) * torch.complex(
        angles[:, None, :half], angles[:, None, half:]
    )
    torch.testing.assert_close(q_out[..., : 2 * half], torch.cat([turned.real, turned.imag], -1))
    late = spec.reference(q, k, table, (positions + 1) % table.shape[0])
    assert verdicts(spec, arguments, late, workload.dtype) == ["wrong_values"] * 2
    low = spec.reference(q, k, table.to(torch.bfloat16).to(torch.float32), positions)
    assert "wrong_values" in verdicts(spec, arguments, low, workload.dtype)


def test_rope_2d_tells_columns_from_lines() -> None:
    spec, workload, arguments = find("rope_2d", dtype="bfloat16", law="fused_qkv")
    q, k, table = tensors(arguments)
    width = workload.axes["width"]
    half = q.shape[-1] // 2
    swapped = spec.reference(*(torch.cat([t[..., half:], t[..., :half]], -1) for t in (q, k)), table, width)
    forged = tuple(torch.cat([t[..., half:], t[..., :half]], -1) for t in swapped)
    assert verdicts(spec, arguments, forged, workload.dtype) == ["wrong_values"] * 2
    first = spec.reference(*arguments)[0][:, 0]
    assert torch.equal(first, q[:, 0].to(torch.float64)), "the token at the origin does not turn"


def test_a_paged_append_touches_the_named_slots_only() -> None:
    spec, workload, arguments = find("kv_append", dtype="float32", law="scattered")
    k, _, k_cache, v_cache, slots = tensors(arguments)
    k_out, v_out = spec.reference(*arguments)
    used = slots[slots >= 0]
    assert len(used) < len(slots)
    rows = k_out.view(-1, *k_out.shape[2:])
    assert torch.equal(rows[used], k[slots >= 0].to(torch.float64))
    untouched = torch.ones(len(rows), dtype=torch.bool).index_fill(0, used, False)
    assert torch.equal(rows[untouched], k_cache.view(rows.shape).to(torch.float64)[untouched])
    assert verdicts(spec, arguments, (k_cache.double(), v_cache.double()), workload.dtype) == ["wrong_values"] * 2
    stray = k_out.clone()
    stray.view(-1)[-1] *= 1 + 2.0**-20
    assert verdicts(spec, arguments, (stray, v_out), workload.dtype) == ["wrong_values", "passed"]


def test_a_wholly_masked_softmax_row_must_be_nan() -> None:
    spec, workload, arguments = find("softmax", dtype="float32", law="masked")
    (expected,) = spec.reference(*arguments)
    assert bool(expected[[0, -1]].isnan().all())
    assert verdicts(spec, arguments, (torch.nan_to_num(expected),), workload.dtype) == ["wrong_values"]


@pytest.mark.parametrize(
    ("name", "axes", "dtype", "flops", "size_bytes"),
    [
        ("silu", {"num_tokens": 3, "hidden_size": 5}, "bfloat16", 60, 60),
        ("silu_and_mul", {"num_tokens": 3, "intermediate_size": 5}, "bfloat16", 75, 90),
        ("silu_and_mul_quantize", {"num_tokens": 3, "intermediate_size": 5}, "bfloat16", 105, 60 + 15 + 12),
        ("sigmoid_mul", {"num_tokens": 3, "num_heads": 2, "head_dim": 5}, "float32", 120, 360),
        ("gelu", {"num_tokens": 3, "hidden_size": 5}, "float16", 120, 60),
        ("softmax", {"num_tokens": 3, "num_classes": 5}, "float32", 75, 120),
        ("rmsnorm", {"num_tokens": 3, "hidden_size": 5}, "bfloat16", 60, 70),
        ("gated_rmsnorm", {"num_tokens": 3, "num_heads": 2, "head_dim": 5}, "bfloat16", 270, 190),
        ("fused_add_rmsnorm", {"num_tokens": 3, "hidden_size": 5}, "bfloat16", 75, 130),
        ("rmsnorm_quantize_fp8", {"num_tokens": 3, "hidden_size": 5}, "bfloat16", 105, 30 + 10 + 15 + 12),
        ("l2norm", {"num_tokens": 3, "num_heads": 2, "head_dim": 5}, "bfloat16", 90, 120),
        ("layernorm", {"num_tokens": 3, "hidden_size": 5}, "bfloat16", 120, 80),
        (
            "groupnorm",
            {"batch_size": 1, "num_channels": 4, "height": 2, "width": 3, "num_groups": 2},
            "float32",
            192,
            224,
        ),
        ("quantize_fp8", {"num_tokens": 3, "hidden_size": 5}, "bfloat16", 45, 30 + 15 + 12),
        (
            "rope_2d",
            {"batch_size": 2, "height": 2, "width": 3, "num_heads": 1, "head_dim": 4},
            "bfloat16",
            288,
            384 + 24,
        ),
        (
            "gemm_bias_gelu",
            {"num_tokens": 2, "in_features": 3, "out_features": 5},
            "bfloat16",
            60 + 90,
            2 * (6 + 15 + 5 + 10),
        ),
    ],
)
def test_cost_equals_a_count_by_hand(name: str, axes: dict[str, int], dtype: str, flops: int, size_bytes: int) -> None:
    cost = operators.load(name).cost(axes, dtype)
    assert (cost.flops, cost.essential_bytes) == (flops, size_bytes)


def test_cost_of_rope_and_append_equals_a_count_by_hand() -> None:
    axes = {"num_tokens": 3, "num_heads": 4, "num_kv_heads": 2, "head_dim": 8, "rotary_dim": 4, "max_position": 9}
    rope = operators.load("rope").cost(axes, "bfloat16")
    assert (rope.flops, rope.essential_bytes) == (3 * 3 * 6 * 4, 2 * 3 * 6 * 8 * 2 + 3 * (16 + 8))
    paged = {**axes, "num_pages": 5, "page_size": 2}
    append = operators.load("kv_append").cost(paged, "bfloat16")
    # Both caches written whole (10 slots of 2 x 8 bf16); as many rows read: 3 from k or v, 7 from the old cache.
    assert (append.flops, append.essential_bytes) == (0, 2 * 2 * 10 * 32 + 3 * 8)
    both = operators.load("rope_kv_append").cost(paged, "bfloat16")
    assert (both.flops, both.essential_bytes) == (rope.flops, 2 * 3 * 4 * 8 * 2 + 3 * 24 + append.essential_bytes)
