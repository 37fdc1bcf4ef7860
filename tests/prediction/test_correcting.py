"""What other devices say is corrected by measurements on the target."""

import math
import random

import pytest

from kb.prediction.correcting import Anchor, Correction, inverse


def anchor(size: float, *, excess: float = 0.0) -> Anchor:
    return Anchor((math.log(size),), math.log(3 + size / 50), excess)


SIZES = (1.0, 8.0, 64.0, 512.0, 4096.0)


def test_a_correction_goes_through_what_was_measured() -> None:
    offs = [0.3, 0.25, 0.0, -0.2, -0.3]
    found = Correction([anchor(size) for size in SIZES], offs, 16.0)
    for size, off in zip(SIZES, offs, strict=True):
        said, far, error = found.at(anchor(size))
        assert said == pytest.approx(off, abs=0.03)
        assert far < 0.15
        assert error < 0.05


def test_between_two_measurements_the_correction_lies_between_theirs_and_is_less_sure() -> None:
    found = Correction([anchor(size) for size in SIZES], [0.3, 0.2, 0.1, -0.1, -0.3], 16.0)
    there, between = found.at(anchor(64)), found.at(anchor(180))
    assert -0.1 < between[0] < 0.1
    assert between[1] > there[1]
    assert between[2] > there[2]


def test_farther_away_the_correction_is_less_sure() -> None:
    found = Correction([anchor(size) for size in SIZES[:3]], [0.2, 0.1, 0.15], 16.0)
    errors = [found.at(anchor(size))[2] for size in (64, 256, 1024, 65536)]
    assert errors == sorted(errors)
    assert errors[0] < errors[-1] / 2


def test_one_measurement_corrects_all_shapes_alike() -> None:
    found = Correction([anchor(64)], [0.4], 16.0)
    assert [found.at(anchor(size))[0] for size in (1, 64, 4096)] == pytest.approx([0.4] * 3)


def test_where_a_kernel_is_slow_on_the_source_alone_few_measurements_show_it() -> None:
    # On the source this kernel is slow at some shapes; on the target it is not, so what is said there is too much.
    excesses = (0.0, 1.0, 0.1, 0.9, 0.0)
    anchors = [anchor(size, excess=excess) for size, excess in zip(SIZES, excesses, strict=True)]
    found = Correction(anchors, [-excess for excess in excesses], 16.0)
    assert found.at(anchor(180, excess=0.8))[0] < found.at(anchor(180, excess=0.1))[0] - 0.4


def test_the_same_shape_measured_twice_is_no_fault() -> None:
    found = Correction([anchor(64), anchor(64)], [0.2, 0.4], 16.0)
    assert found.at(anchor(64))[0] == pytest.approx(0.3, abs=0.01)


def test_an_inverse_is_one() -> None:
    rng = random.Random(5)  # noqa: S311 - not for secrets
    for count in (1, 2, 7, 15):
        factor = [[rng.gauss(0, 1) for _ in range(count)] for _ in range(count)]
        rows = [[sum(a * b for a, b in zip(one, other, strict=True)) for other in factor] for one in factor]
        rows = [[value + (i == j) for j, value in enumerate(row)] for i, row in enumerate(rows)]
        turned = inverse(rows)
        product = [[sum(rows[i][k] * turned[k][j] for k in range(count)) for j in range(count)] for i in range(count)]
        assert [value for row in product for value in row] == pytest.approx(
            [float(i == j) for i in range(count) for j in range(count)], abs=1e-9
        )
