"""Matrix products: references agree with independent formulations, and cheap answers are refused."""

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kb.validators import operators
from kb.validators.operators import formats
from kb.validators.operators.grouped_gemm import one_expert_offsets, spread_offsets
from kb.validators.operators.spec import DTYPES, Arguments, Operator, Workload, generator
from kb.validators.runtime.compare import compare_call

NAMES = (
    "fused_moe",
    "gemm",
    "gemm_fp8",
    "gemm_fp8_block",
    "gemm_mxfp4",
    "gemm_nvfp4",
    "grouped_gemm",
    "moe_grouped_gemm_mxfp4",
    "moe_grouped_gemm_nvfp4",
    "quantize_nvfp4",
)

PRODUCTS = tuple(name for name in NAMES if name != "quantize_nvfp4")


def cases(name: str) -> list[tuple[Operator, Workload, Arguments]]:
    """Return operator, workload and arguments of all non-empty awkward workloads."""
    spec = operators.load(name)
    chosen = [w for w in spec.workloads if w.use == "awkward" and all(w.axes.values())]
    return [(spec, w, spec.laws[w.law](w.axes, w.dtype, generator(11))) for w in chosen]


def rounded(spec: Operator, workload: Workload, wide: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Round float64 results once to the dtypes of the outputs."""
    names = [workload.dtype if b.dtype == "data" else b.dtype for b in spec.outputs]
    return tuple(one.to(DTYPES[name]) for one, name in zip(wide, names, strict=True))


def accepted(spec: Operator, workload: Workload, arguments: Arguments, wide: tuple[torch.Tensor, ...]) -> bool:
    """Tell whether the results pass once they are rounded to the outputs' dtypes."""
    results = compare_call(spec, arguments, rounded(spec, workload, wide), dtype=workload.dtype)
    return all(r.verdict == "passed" for r in results)


def big(name: str) -> tuple[Operator, Workload, Arguments]:
    """Return the case with the most arguments' elements, where statistics are worth something."""
    return max(cases(name), key=lambda c: sum(a.numel() for a in c[2] if isinstance(a, torch.Tensor)))


@pytest.mark.parametrize("name", NAMES)
def test_the_correctly_rounded_reference_passes(name: str) -> None:
    for spec, workload, arguments in cases(name):
        assert accepted(spec, workload, arguments, spec.reference(*arguments)), workload


@pytest.mark.parametrize("name", NAMES)
def test_zeros_are_refused_everywhere(name: str) -> None:
    for spec, workload, arguments in cases(name):
        zeros = tuple(torch.zeros_like(one) for one in spec.reference(*arguments))
        assert not accepted(spec, workload, arguments, zeros), workload


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_dropped_last_element_of_k_is_refused(name: str) -> None:
    spec, workload, arguments = big(name)
    first = arguments[0]
    assert isinstance(first, torch.Tensor)
    cut = first.clone()
    cut[:, -1] = torch.zeros((), dtype=first.dtype)
    assert not accepted(spec, workload, arguments, spec.reference(cut, *arguments[1:]))


@pytest.mark.parametrize("name", PRODUCTS)
def test_activations_one_precision_lower_are_refused(name: str) -> None:
    spec, workload, arguments = big(name)
    first = arguments[0]
    assert isinstance(first, torch.Tensor)
    wide = first.to(torch.float64)
    scale = wide.abs().amax(-1, keepdim=True).clamp(min=1e-30)
    if first.dtype == torch.float8_e4m3fn:
        lower = formats.round_to_format(wide * 6 / scale, 1, 0, 6.0) * scale / 6
    else:
        lower = formats.round_to_format(wide * 448 / scale, 3, -6, 448.0) * scale / 448
    assert not accepted(spec, workload, arguments, spec.reference(lower, *arguments[1:]))


@pytest.mark.parametrize("bits", [11, 8])
def test_sixteen_bit_arithmetic_is_refused_as_float32_gemm(bits: int) -> None:
    spec = operators.load("gemm")
    workload = Workload({"m": 33, "n": 65, "k": 257}, "float32")
    a, b = spec.laws["normal"](workload.axes, "float32", generator(2))
    assert isinstance(a, torch.Tensor)
    assert isinstance(b, torch.Tensor)
    low = formats.round_to_format(a, bits - 1, -100, 1e30), formats.round_to_format(b, bits - 1, -100, 1e30)
    assert not accepted(spec, workload, (a, b), spec.reference(*low)), "11 bits are those of TF32 and float16"
    assert accepted(spec, workload, (a, b), ((a @ b).to(torch.float64),)), "honest float32 passes"


def test_bfloat16_partial_sums_are_refused() -> None:
    spec = operators.load("gemm")
    workload = Workload({"m": 16, "n": 64, "k": 1024}, "bfloat16")
    a, b = spec.laws["normal"](workload.axes, "bfloat16", generator(4))
    assert isinstance(a, torch.Tensor)
    assert isinstance(b, torch.Tensor)
    halves = [(a[:, s].double() @ b[s].double()).to(torch.bfloat16).double() for s in (slice(512), slice(512, 1024))]
    assert not accepted(spec, workload, (a, b), (halves[0] + halves[1],))


def test_grouped_gemm_equals_one_gather_and_batched_product() -> None:
    for spec, _, arguments in cases("grouped_gemm"):
        x, weight, offsets = (a for a in arguments if isinstance(a, torch.Tensor))
        counts = (offsets[1:] - offsets[:-1]).to(torch.int64)
        expert = torch.repeat_interleave(torch.arange(len(counts)), counts)
        other = torch.einsum("tk,tnk->tn", x.double(), weight.double()[expert])
        torch.testing.assert_close(spec.reference(*arguments)[0], other, rtol=1e-12, atol=1e-12)


def test_low_bit_products_equal_a_plain_product_of_decoded_weights() -> None:
    for spec, _, (x, packed, scale, outer) in cases("gemm_nvfp4"):
        assert isinstance(x, torch.Tensor)
        assert isinstance(packed, torch.Tensor)
        assert isinstance(scale, torch.Tensor)
        assert isinstance(outer, torch.Tensor)
        table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)
        weight = torch.empty(packed.shape[0], 2 * packed.shape[1], dtype=torch.float64)
        weight[:, 0::2], weight[:, 1::2] = table[(packed & 15).long()], table[(packed >> 4).long()]
        weight *= scale.double().repeat_interleave(16, 1) * outer.double()
        got = spec.reference(x, packed, scale, outer)[0]
        torch.testing.assert_close(got, x.double() @ weight.T, rtol=1e-12, atol=1e-12)


def test_swapped_nibbles_and_a_shifted_scale_are_refused() -> None:
    for name in ("gemm_nvfp4", "gemm_mxfp4", "moe_grouped_gemm_nvfp4", "moe_grouped_gemm_mxfp4"):
        spec, workload, arguments = big(name)
        x, packed, scale = arguments[:3]
        assert isinstance(packed, torch.Tensor)
        assert isinstance(scale, torch.Tensor)
        swapped = (packed >> 4) | (packed << 4)
        assert not accepted(spec, workload, arguments, spec.reference(x, swapped, scale, *arguments[3:])), name
        shifted = scale.view(torch.uint8).roll(1, -1).view(scale.dtype)
        assert not accepted(spec, workload, arguments, spec.reference(x, packed, shifted, *arguments[3:])), name


def test_a_wrong_expert_is_refused() -> None:
    for name in ("grouped_gemm", "moe_grouped_gemm_nvfp4", "moe_grouped_gemm_mxfp4"):
        spec, workload, arguments = big(name)
        weight = arguments[1]
        assert isinstance(weight, torch.Tensor)
        moved = spec.reference(arguments[0], weight.roll(1, 0), *arguments[2:])
        assert not accepted(spec, workload, arguments, moved), name


def test_activations_on_an_fp4_grid_survive_fp4_quantisation() -> None:
    spec = operators.load("moe_grouped_gemm_nvfp4")
    axes = {"num_tokens_expanded": 19, "num_experts": 4, "n": 8, "k": 160, "activation_bits": 4}
    x = spec.laws["normal"](axes, "bfloat16", generator(3))[0]
    assert isinstance(x, torch.Tensor)
    one = torch.ones(1)
    assert torch.equal(formats.nvfp4_dequantize(*formats.nvfp4_quantize(x, one), one), x.double())


def test_fused_moe_equals_the_dense_formulation() -> None:
    for spec, _, arguments in cases("fused_moe"):
        x, gate_up, down, ids, share = (a.double() for a in arguments if isinstance(a, torch.Tensor))
        gate, up = torch.einsum("th,ejh->tej", x, gate_up).chunk(2, -1)
        y = torch.einsum("tei,ehi->teh", torch.nn.functional.silu(gate) * up, down)
        dense = torch.zeros(ids.shape[0], down.shape[0], dtype=torch.float64).scatter_add_(1, ids.long(), share)
        torch.testing.assert_close(spec.reference(*arguments)[0], torch.einsum("te,teh->th", dense, y))


def test_fused_moe_accepts_bfloat16_intermediates_and_refuses_fp8_ones() -> None:
    spec, workload, arguments = big("fused_moe")
    x, gate_up, down, ids, share = (a for a in arguments if isinstance(a, torch.Tensor))

    def computed(dtype: torch.dtype) -> torch.Tensor:
        y = torch.zeros(x.shape, dtype=torch.float64)
        for slot in range(ids.shape[1]):
            product = torch.einsum("th,tjh->tj", x.double(), gate_up.double()[ids[:, slot].long()])
            gate, up = product.to(dtype).double().chunk(2, -1)
            h = (torch.nn.functional.silu(gate) * up).to(dtype).double()
            row = torch.einsum("ti,thi->th", h, down.double()[ids[:, slot].long()]).to(dtype).double()
            y += share[:, slot : slot + 1].double() * row
        return y

    assert accepted(spec, workload, arguments, (computed(torch.bfloat16),))
    assert not accepted(spec, workload, arguments, (computed(torch.float8_e4m3fn),))


def test_routing_hits_as_many_experts_as_the_cost_counts() -> None:
    for tokens, experts in ((5, 8), (8, 8), (100, 8), (0, 3)):
        offsets = spread_offsets(tokens, experts, generator(tokens))
        assert int(offsets[-1]) == tokens
        assert int((offsets[1:] > offsets[:-1]).sum()) == min(tokens, experts)
    assert one_expert_offsets(7, 4).tolist() == [0, 0, 0, 7, 7]
    spec = operators.load("fused_moe")
    axes = {"num_tokens": 9, "hidden_size": 4, "intermediate_size": 4, "num_experts": 7, "top_k": 3}
    ids = spec.laws["normal"](axes, "bfloat16", generator(1))[3]
    assert isinstance(ids, torch.Tensor)
    assert len(set(ids.flatten().tolist())) == 7
    assert all(len(set(row)) == 3 for row in ids.tolist())


def test_quantiser_shortcuts_are_refused() -> None:
    spec = operators.load("quantize_nvfp4")
    workload = next(w for w in spec.workloads if w.law == "ties" and w.dtype == "float32")
    arguments = spec.laws["ties"](workload.axes, "float32", generator(6))
    x, outer = (a for a in arguments if isinstance(a, torch.Tensor))
    packed, scale = spec.reference(x, outer)
    for change in (0.5, 2.0, 1 + 2.0**-3):
        assert not accepted(spec, workload, arguments, (packed, scale * change))
    away = formats.nvfp4_quantize(x * (1 + 1e-6), outer)
    assert not accepted(spec, workload, arguments, (away[0], away[1].double())), "ties must go to even"


@pytest.mark.parametrize(
    ("name", "axes", "flops", "size_bytes"),
    [
        ("gemm", {"m": 2, "n": 3, "k": 5}, 60, 2 * (10 + 15 + 6)),
        ("gemm_fp8", {"m": 2, "n": 3, "k": 5}, 60, 10 + 15 + 12 + 8),
        ("gemm_fp8_block", {"m": 2, "n": 3, "k": 130}, 1560, 260 + 390 + 12 + 4 * (2 * 2 + 1 * 2)),
        ("gemm_nvfp4", {"m": 2, "n": 3, "k": 32}, 384, 2 * (64 + 6) + 48 + 6 + 4),
        ("gemm_mxfp4", {"m": 2, "n": 3, "k": 32}, 384, 2 * (64 + 6) + 48 + 3),
        ("grouped_gemm", {"num_tokens_expanded": 2, "num_experts": 3, "n": 4, "k": 5}, 80, 2 * (18 + 40) + 16),
        (
            "moe_grouped_gemm_nvfp4",
            {"num_tokens_expanded": 4, "num_experts": 3, "n": 2, "k": 16, "activation_bits": 16},
            256,
            2 * (64 + 8) + 3 * (16 + 2 + 4) + 16,
        ),
        (
            "moe_grouped_gemm_mxfp4",
            {"num_tokens_expanded": 1, "num_experts": 3, "n": 2, "k": 32},
            128,
            2 * (32 + 2) + (32 + 2) + 16,
        ),
        (
            "fused_moe",
            {"num_tokens": 2, "hidden_size": 3, "intermediate_size": 5, "num_experts": 9, "top_k": 2},
            6 * 4 * 15,
            2 * (12 + 3 * 4 * 15) + 32,
        ),
        ("quantize_nvfp4", {"num_tokens": 2, "hidden_size": 32}, 512, 128 + 32 + 4 + 4),
    ],
)
def test_cost_by_hand(name: str, axes: dict[str, int], flops: int, size_bytes: int) -> None:
    cost = operators.load(name).cost(axes, "bfloat16")
    assert (cost.flops, cost.essential_bytes) == (flops, size_bytes)


def fp4_unit_kernel() -> ModuleType:
    """Load the kernel that needs FP4 matrix units, which the harness for entries must leave out."""
    root = Path(__file__).resolve().parents[3] / "entries/kernel/moe_grouped_gemm_nvfp4/native-fp4-mma"
    spec = importlib.util.spec_from_file_location("fp4_unit_kernel", root / "kernel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton's interpreter")
def test_the_kernel_for_fp4_units_is_right_up_to_the_reading_of_scales() -> None:
    """The interpreter takes scales for e8m0, so the product is checked with powers of two, and the quantiser alone."""
    kernel = fp4_unit_kernel()
    spec = operators.load("moe_grouped_gemm_nvfp4")
    axes = {"num_tokens_expanded": 45, "num_experts": 5, "n": 24, "k": 144, "activation_bits": 4}
    x, packed, _, outer, offsets = (
        a for a in spec.laws["normal"](axes, "bfloat16", generator(8)) if isinstance(a, torch.Tensor)
    )
    codes = torch.empty(45, 72, dtype=torch.uint8)
    scale = torch.empty(45, 9, dtype=torch.float8_e4m3fn)
    row_scale = torch.empty(45)
    kernel._quantize_row[(45,)](x, codes, scale, row_scale, 144, BLOCK=256)
    assert torch.equal(formats.nvfp4_dequantize(codes, scale, row_scale.unsqueeze(1)), x.double())

    rng = generator(9)
    x_exponent = torch.randint(124, 131, (45, 9), generator=rng, dtype=torch.uint8)
    w_exponent = torch.randint(124, 131, (5, 24, 9), generator=rng, dtype=torch.uint8)
    y = torch.empty(45, 24)
    grid = ((45 // 16 + 5) * 1,)
    sizes = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 128, "BLOCK_E": 8, "EVEN_K": False}
    arrays = (codes, x_exponent, row_scale, packed, w_exponent, outer, offsets, y)
    kernel._moe_fp4[grid](*arrays, 5, 24, 144, 72, 9, **sizes)
    as_e4m3 = [torch.exp2(e.double() - 127).to(torch.float8_e4m3fn) for e in (x_exponent, w_exponent)]
    decoded = formats.nvfp4_dequantize(codes, as_e4m3[0], row_scale.unsqueeze(1))
    wide = spec.reference(decoded, packed, as_e4m3[1], outer, offsets)
    scales = spec.condition(decoded, packed, as_e4m3[1], outer, offsets) if spec.condition else ()
    assert bool(((y.double() - wide[0]).abs() <= 200 * 2.0**-24 * scales[0] + 1e-35).all())
