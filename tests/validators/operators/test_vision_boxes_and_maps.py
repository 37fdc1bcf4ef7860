"""Vision operators on boxes, masks and feature maps."""

import pytest
import torch
import torch.nn.functional as f

from kb.validators import operators
from kb.validators.operators.spec import generator
from kb.validators.runtime.compare import compare_call


def arguments_of(name: str, index: int, seed: int = 3) -> tuple[object, ...]:
    """Draw the arguments of the awkward workload at ``index``."""
    spec = operators.load(name)
    workload = spec.workloads[index]
    return spec.laws[workload.law](workload.axes, workload.dtype, generator(seed))


def test_resizing_agrees_with_torch() -> None:
    spec = operators.load("resize_bilinear")
    for index, workload in enumerate(spec.workloads):
        if workload.use == "target" or workload.axes["batch"] == 0:
            continue
        x, height, width = arguments_of("resize_bilinear", index)
        assert isinstance(x, torch.Tensor)
        assert isinstance(height, int)
        assert isinstance(width, int)
        wanted = f.interpolate(x.double(), (height, width), mode="bilinear", align_corners=False)
        torch.testing.assert_close(spec.reference(x, height, width)[0], wanted)


def test_resizing_by_nearest_and_with_aligned_corners_is_refused() -> None:
    spec = operators.load("resize_bilinear")
    x, height, width = arguments_of("resize_bilinear", 3)
    assert isinstance(x, torch.Tensor)
    assert isinstance(height, int)
    assert isinstance(width, int)
    honest = f.interpolate(x, (height, width), mode="bilinear", align_corners=False)
    assert compare_call(spec, (x, height, width), honest, dtype="float32")[0].verdict == "passed"
    aligned = f.interpolate(x, (height, width), mode="bilinear", align_corners=True)
    nearest = f.interpolate(x, (height, width), mode="nearest")
    for answer in (aligned, nearest, honest.to(torch.bfloat16).float(), torch.zeros_like(honest)):
        assert compare_call(spec, (x, height, width), answer, dtype="float32")[0].verdict == "wrong_values"


def test_pooling_agrees_with_torch_and_keeps_nan() -> None:
    spec = operators.load("max_pool2d")
    for index, workload in enumerate(spec.workloads):
        if workload.use == "target" or workload.axes["batch"] == 0:
            continue
        x, kernel, stride = arguments_of("max_pool2d", index)
        assert isinstance(x, torch.Tensor)
        assert isinstance(kernel, int)
        assert isinstance(stride, int)
        wanted = f.max_pool2d(x.permute(0, 3, 1, 2).double(), kernel, stride).permute(0, 2, 3, 1)
        torch.testing.assert_close(spec.reference(x, kernel, stride)[0], wanted, equal_nan=True)
        answer = spec.reference(x, kernel, stride)[0].to(x.dtype)
        assert compare_call(spec, (x, kernel, stride), answer, dtype=workload.dtype)[0].verdict == "passed"


def test_pooling_one_bit_off_and_average_are_refused() -> None:
    spec = operators.load("max_pool2d")
    x, kernel, stride = arguments_of("max_pool2d", 2)
    assert isinstance(x, torch.Tensor)
    exact = spec.reference(x, kernel, stride)[0].float()
    average = f.avg_pool2d(x.permute(0, 3, 1, 2), 2, 2).permute(0, 2, 3, 1)
    for answer in (exact * (1 + 2**-22), average, exact.clamp_min(0), exact.to(torch.bfloat16).float()):
        assert compare_call(spec, (x, kernel, stride), answer, dtype="float32")[0].verdict == "wrong_values"


def align_by_hand(x: torch.Tensor, box: list[float], *, scale: float, pooled: int, ratio: int) -> torch.Tensor:
    """Pool one box of x [h, w, c] sample by sample, as torchvision's source defines it; returns [pooled, pooled, c]."""
    height, width = x.shape[:2]
    left, top, right, bottom = (v * scale - 0.5 for v in box)
    out = torch.zeros(pooled, pooled, x.shape[2], dtype=torch.float64)
    for p in range(pooled):
        for q in range(pooled):
            for a in range(ratio):
                for b in range(ratio):
                    y = top + (p + (a + 0.5) / ratio) * (bottom - top) / pooled
                    z = left + (q + (b + 0.5) / ratio) * (right - left) / pooled
                    if y < -1 or y > height or z < -1 or z > width:
                        continue
                    y, z = max(y, 0.0), max(z, 0.0)
                    y0, z0 = min(int(y), height - 1), min(int(z), width - 1)
                    y1, z1 = min(y0 + 1, height - 1), min(z0 + 1, width - 1)
                    fy, fz = (y - y0 if y1 > y0 else 0.0), (z - z0 if z1 > z0 else 0.0)
                    above = x[y0, z0] * (1 - fz) + x[y0, z1] * fz
                    below = x[y1, z0] * (1 - fz) + x[y1, z1] * fz
                    out[p, q] += (above * (1 - fy) + below * fy) / ratio**2
    return out


@pytest.mark.parametrize("index", [0, 2, 5])
def test_roi_align_agrees_with_sampling_by_hand(index: int) -> None:
    spec = operators.load("roi_align")
    x, rois, scale, pooled, ratio = arguments_of("roi_align", index)
    assert isinstance(x, torch.Tensor)
    assert isinstance(rois, torch.Tensor)
    assert isinstance(scale, float)
    assert isinstance(pooled, int)
    assert isinstance(ratio, int)
    answer = spec.reference(x, rois, scale, pooled, ratio)[0]
    for row, got in zip(rois.tolist(), answer, strict=True):
        wanted = align_by_hand(x[int(row[0])].double(), row[1:], scale=scale, pooled=pooled, ratio=ratio)
        torch.testing.assert_close(got, wanted)


def test_roi_align_without_the_half_pixel_is_refused() -> None:
    spec = operators.load("roi_align")
    x, rois, *rest = arguments_of("roi_align", 2)
    assert isinstance(rois, torch.Tensor)
    assert isinstance(rest[0], float)
    moved = rois.clone()
    moved[:, 1:] += 0.5 / rest[0]
    answer = spec.reference(x, moved, *rest)[0].float()
    exact = spec.reference(x, rois, *rest)[0].float()
    assert compare_call(spec, (x, rois, *rest), exact, dtype="float32")[0].verdict == "passed"
    for wrong in (answer, torch.zeros_like(exact), exact.to(torch.bfloat16).float()):
        assert compare_call(spec, (x, rois, *rest), wrong, dtype="float32")[0].verdict == "wrong_values"


def test_nms_keeps_ties_and_empty_boxes() -> None:
    spec = operators.load("nms")
    boxes = torch.tensor([[0, 0, 10, 10], [9, 0, 19, 10], [8, 0, 18, 10], [5, 5, 5, 9], [2, 2, 4, 4]]).float()
    # 10 of 100 is a tie at one tenth; 20 of 100 goes; no area stays; a small box inside a large one goes.
    assert spec.reference(boxes, 0.1)[0].tolist() == [True, True, False, True, False]


def test_nms_lets_a_removed_box_remove_nothing() -> None:
    boxes = torch.tensor([[0, 0, 10, 10], [7, 0, 17, 10], [14, 0, 24, 10]]).float()
    assert operators.load("nms").reference(boxes, 0.1)[0].tolist() == [True, False, True]


def test_nms_answers_that_ignore_order_or_suppression_are_refused() -> None:
    spec = operators.load("nms")
    for index in (4, 6):
        boxes, threshold = arguments_of("nms", index)
        assert isinstance(boxes, torch.Tensor)
        exact = spec.reference(boxes, threshold)[0]
        backwards = spec.reference(boxes.flip(0), threshold)[0].flip(0)
        one_off = exact.clone()
        one_off[-1] = ~one_off[-1]
        assert compare_call(spec, (boxes, threshold), exact, dtype="float32")[0].verdict == "passed"
        for wrong in (torch.ones_like(exact), torch.zeros_like(exact), backwards, one_off):
            assert compare_call(spec, (boxes, threshold), wrong, dtype="float32")[0].verdict == "wrong_values"


def flood(mask: torch.Tensor) -> torch.Tensor:
    """Label one image [h, w] by flooding from every unlabelled pixel in order."""
    height, width = mask.shape
    labels = torch.zeros(height, width, dtype=torch.int32)
    for start in range(height * width):
        if not mask[start // width, start % width] or labels[start // width, start % width]:
            continue
        stack = [(start // width, start % width)]
        while stack:
            row, col = stack.pop()
            if 0 <= row < height and 0 <= col < width and mask[row, col] and not labels[row, col]:
                labels[row, col] = start + 1
                stack += [(row + r, col + c) for r in (-1, 0, 1) for c in (-1, 0, 1)]
    return labels


@pytest.mark.parametrize("law", ["normal", "blobs", "snake", "comb"])
def test_components_agree_with_flooding(law: str) -> None:
    spec = operators.load("connected_components")
    (mask,) = spec.laws[law]({"batch": 2, "height": 11, "width": 14}, "bool", generator(7))
    assert isinstance(mask, torch.Tensor)
    wanted = torch.stack([flood(image) for image in mask])
    assert torch.equal(spec.reference(mask)[0], wanted)


def test_components_of_four_neighbours_or_other_numbers_are_refused() -> None:
    spec = operators.load("connected_components")
    mask = torch.tensor([[[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 1]]], dtype=torch.bool)
    exact = torch.tensor([[[1, 0, 0, 4], [0, 1, 0, 0], [0, 0, 0, 12]]], dtype=torch.int32)
    four = torch.tensor([[[1, 0, 0, 4], [0, 6, 0, 0], [0, 0, 0, 12]]], dtype=torch.int32)
    dense = torch.tensor([[[1, 0, 0, 2], [0, 1, 0, 0], [0, 0, 0, 3]]], dtype=torch.int32)
    assert compare_call(spec, (mask,), exact, dtype="bool")[0].verdict == "passed"
    assert compare_call(spec, (mask,), four, dtype="bool")[0].verdict == "wrong_values"
    assert compare_call(spec, (mask,), dense, dtype="bool")[0].verdict == "wrong_values"
    assert compare_call(spec, (mask,), exact.long(), dtype="bool")[0].verdict == "wrong_dtype"


def test_costs_by_hand() -> None:
    assert operators.load("nms").cost({"num_boxes": 200}, "float32").flops == 12 * 19_900
    axes = {"batch": 16, "height": 288, "width": 288}
    assert operators.load("connected_components").cost(axes, "bool").essential_bytes == 5 * 16 * 288 * 288
    pool = operators.load("max_pool2d")
    axes = dict(next(w.axes for w in pool.workloads if w.use == "target"))
    assert pool.cost(axes, "bfloat16").essential_bytes == 2 * 1024 * (72 * 72 + 36 * 36)
    resize = operators.load("resize_bilinear")
    axes = dict(next(w.axes for w in resize.workloads if w.use == "target"))
    assert resize.cost(axes, "bfloat16").essential_bytes == 2 * 16 * (288 * 288 + 1080 * 1920)
    roi = operators.load("roi_align")
    axes = dict(next(w.axes for w in roi.workloads if w.use == "target"))
    assert roi.cost(axes, "bfloat16").flops == 8 * 16 * 49 * 256 * 4
