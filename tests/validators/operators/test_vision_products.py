"""Vision operators that are sums of products: masks, patches, convolutions."""

import pytest
import torch
import torch.nn.functional as f

from kb.validators import operators
from kb.validators.operators.spec import Operator, Workload, generator
from kb.validators.runtime.compare import compare_call

PRODUCTS = ("mask_decode", "patch_embed", "conv2d", "conv_transpose2d", "depthwise_conv2d")
LOWER = {"float32": torch.bfloat16, "float16": torch.float8_e4m3fn, "bfloat16": torch.float8_e4m3fn}


def drawn(name: str, dtype: str = "float32") -> tuple[Operator, Workload, tuple[object, ...]]:
    """Return the spec, its largest workload of that dtype under a law of dense reals, and one draw of the arguments."""
    spec = operators.load(name)
    dense = ("normal", "cancelling")
    cases = [w for w in spec.workloads if w.use == "awkward" and w.dtype == dtype and w.law in dense]
    workload = max(cases, key=lambda w: spec.cost(w.axes, w.dtype).flops)
    return spec, workload, spec.laws[workload.law](workload.axes, dtype, generator(3))


def verdict(spec: Operator, arguments: tuple[object, ...], answer: torch.Tensor, dtype: str) -> str:
    """Return the verdict on one answer."""
    return compare_call(spec, arguments, answer, dtype=dtype)[0].verdict


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_rounded_reference_passes_and_cheap_answers_fail(name: str, dtype: str) -> None:
    spec, _, arguments = drawn(name, dtype)
    exact = spec.reference(*arguments)[0]
    rounded = exact.to(getattr(torch, dtype))
    assert verdict(spec, arguments, rounded, dtype) == "passed"
    assert verdict(spec, arguments, torch.zeros_like(rounded), dtype) == "wrong_values"
    lower = exact.to(LOWER[dtype]).to(rounded.dtype)
    assert verdict(spec, arguments, lower, dtype) == "wrong_values"


@pytest.mark.parametrize("name", PRODUCTS)
def test_operands_in_bfloat16_are_refused_where_float32_is_asked(name: str) -> None:
    spec, _, arguments = drawn(name)
    cut = [a.to(torch.bfloat16) if isinstance(a, torch.Tensor) else a for a in arguments]
    assert verdict(spec, arguments, spec.reference(*cut)[0].to(torch.float32), "float32") == "wrong_values"


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_dropped_term_is_refused(name: str) -> None:
    spec, _, arguments = drawn(name)
    changed = list(arguments)
    argument = 0 if name == "mask_decode" else 1
    tensor = changed[argument]
    assert isinstance(tensor, torch.Tensor)
    less = tensor.clone()
    less[tuple(size // 2 for size in less.shape)] = 0
    changed[argument] = less
    assert verdict(spec, arguments, spec.reference(*changed)[0].to(torch.float32), "float32") == "wrong_values"


def test_masks_agree_with_a_batched_product() -> None:
    spec, _, (queries, features) = drawn("mask_decode")
    assert isinstance(queries, torch.Tensor)
    assert isinstance(features, torch.Tensor)
    torch.testing.assert_close(spec.reference(queries, features)[0], torch.bmm(queries.double(), features.double()))


def test_the_cost_of_the_detector_masks() -> None:
    spec = operators.load("mask_decode")
    cost = spec.cost({"batch": 1, "num_queries": 200, "channels": 256, "num_pixels": 82944}, "bfloat16")
    assert cost.flops == 8_493_465_600
    assert cost.essential_bytes == 2 * (200 * 256 + 256 * 82944 + 200 * 82944)


def test_patches_agree_with_a_strided_convolution() -> None:
    spec, _, (images, weight) = drawn("patch_embed")
    assert isinstance(images, torch.Tensor)
    assert isinstance(weight, torch.Tensor)
    wanted = f.conv2d(images.double(), weight.double(), stride=weight.shape[-1]).flatten(2).transpose(1, 2)
    torch.testing.assert_close(spec.reference(images, weight)[0], wanted)


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d", "depthwise_conv2d"])
def test_convolutions_agree_with_torch_at_every_workload(name: str) -> None:
    spec = operators.load(name)
    for workload in spec.workloads:
        if workload.use != "awkward" or workload.axes["batch"] == 0:
            continue
        x, weight, bias, *rest = spec.laws[workload.law](workload.axes, workload.dtype, generator(5))
        assert isinstance(x, torch.Tensor)
        assert isinstance(weight, torch.Tensor)
        assert isinstance(bias, torch.Tensor)
        planar, wide, shift = x.double().permute(0, 3, 1, 2), weight.double(), bias.double()
        if name == "conv2d":
            wanted = f.conv2d(
                planar, wide.permute(0, 3, 1, 2), shift, workload.axes["stride"], workload.axes["padding"]
            )
        elif name == "conv_transpose2d":
            wanted = f.conv_transpose2d(planar, wide.permute(0, 3, 1, 2), shift, workload.axes["stride"])
        else:
            kernel = wide.permute(2, 0, 1)[:, None]
            wanted = f.conv2d(planar, kernel, shift, padding=kernel.shape[-1] // 2, groups=kernel.shape[0])
        torch.testing.assert_close(spec.reference(x, weight, bias, *rest)[0], wanted.permute(0, 2, 3, 1))


@pytest.mark.parametrize("name", PRODUCTS)
def test_condition_has_the_shape_of_the_answer_and_is_positive(name: str) -> None:
    spec, _, arguments = drawn(name)
    assert spec.condition is not None
    scale, answer = spec.condition(*arguments)[0], spec.reference(*arguments)[0]
    assert scale.shape == answer.shape
    assert bool((scale > 0).all())


def test_costs_by_hand() -> None:
    patch = operators.load("patch_embed")
    axes = next(w.axes for w in patch.workloads if w.use == "target")
    assert patch.cost(axes, "bfloat16").flops == 2 * 5184 * 588 * 1024
    assert patch.cost(axes, "bfloat16").essential_bytes == 2 * (3 * 1008 * 1008 + 588 * 1024 + 5184 * 1024)
    conv = operators.load("conv2d")
    axes = next(w.axes for w in conv.workloads if w.use == "target")
    assert conv.cost(axes, "bfloat16").flops == 2 * 288 * 288 * 256 * 2304
    up = operators.load("conv_transpose2d")
    axes = next(w.axes for w in up.workloads if w.use == "target")
    assert up.cost(axes, "bfloat16").flops == 2 * 5184 * 1024 * 2048
    assert up.cost(axes, "bfloat16").essential_bytes == 2 * (5184 * 1024 + 1024 * 2048 + 144 * 144 * 512 + 512)
    depth = operators.load("depthwise_conv2d")
    axes = next(w.axes for w in depth.workloads if w.use == "target")
    assert depth.cost(axes, "bfloat16").flops == 2 * 49 * 256 * 5184
