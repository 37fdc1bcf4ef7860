"""The low-bit formats against their definitions, value by value."""

import pytest
import torch

from kb.validators.operators import formats
from kb.validators.operators.spec import generator


def test_every_e2m1_code_survives_decoding_and_encoding() -> None:
    codes = torch.arange(16, dtype=torch.uint8)
    assert torch.equal(formats.e2m1_encode(formats.e2m1_decode(codes)), codes)


def test_e2m1_goes_to_the_even_code_at_midpoints_and_saturates() -> None:
    x = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 5.001, 1e9, -0.25, -0.0])
    decoded = formats.e2m1_decode(formats.e2m1_encode(x)).tolist()
    assert decoded == [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 6.0, 6.0, 0.0, 0.0]
    assert formats.e2m1_encode(x)[-2:].tolist() == [8, 8], "the sign survives rounding to zero"


def test_e4m3_equals_the_cast_of_torch_inside_the_range() -> None:
    rng = generator(3)
    x = torch.randn(50_000, generator=rng) * torch.exp2(torch.randint(-14, 8, (50_000,), generator=rng).float())
    x = x.clamp(-448, 448)
    assert torch.equal(formats.e4m3(x).view(torch.uint8), x.to(torch.float8_e4m3fn).view(torch.uint8))


def test_e4m3_saturates_where_the_cast_of_torch_gives_nan() -> None:
    assert formats.e4m3(torch.tensor([500.0, -1e6])).to(torch.float32).tolist() == [448.0, -448.0]


def test_rounding_from_float64_is_single() -> None:
    # Through float32 this would first become the midpoint 1.0625 and then the even neighbour 1.0.
    just_above = torch.tensor([1.0625 + 2.0**-40], dtype=torch.float64)
    assert formats.e4m3(just_above).to(torch.float64).item() == 1.125


def test_the_even_index_is_in_the_low_nibble() -> None:
    assert formats.pack_nibbles(torch.tensor([[1, 2, 3, 15]], dtype=torch.uint8)).tolist() == [[0x21, 0xF3]]
    assert formats.unpack_nibbles(torch.tensor([[0x21, 0xF3]], dtype=torch.uint8)).tolist() == [[1, 2, 3, 15]]


def test_nvfp4_by_hand() -> None:
    x = torch.zeros(1, 16)
    x[0, :4] = torch.tensor([12.0, -1.0, 3.1, 0.4])
    packed, scale = formats.nvfp4_quantize(x, torch.tensor([0.5]))
    assert scale.to(torch.float32).tolist() == [[4.0]]
    decoded = formats.nvfp4_dequantize(packed, scale, torch.tensor([0.5]))
    assert decoded[0, :4].tolist() == [12.0, -1.0, 3.0, 0.0]


def test_nvfp4_of_values_on_its_own_grid_is_lossless() -> None:
    rng = generator(5)
    codes = torch.randint(0, 16, (6, 4, 16), generator=rng)
    codes[..., 0] = 7
    step = torch.exp2(torch.randint(-3, 4, (6, 4, 1), generator=rng).to(torch.float64)) * 1.125
    x = (formats.e2m1_decode(codes) * step).flatten(1)
    one = torch.ones(1)
    assert torch.equal(formats.nvfp4_dequantize(*formats.nvfp4_quantize(x, one), one), x)


def test_the_global_scale_puts_the_largest_element_on_the_largest_code() -> None:
    x = torch.tensor([[2688.0] + [1.0] * 15])
    assert formats.nvfp4_global_scale(x).tolist() == [1.0]
    assert formats.nvfp4_global_scale(torch.zeros(2, 16)).tolist() == [1.0]


def test_mxfp4_takes_the_exponent_of_the_largest_element() -> None:
    x = torch.zeros(1, 32)
    x[0, :3] = torch.tensor([7.9, -2.0, 0.5])
    packed, scale = formats.mxfp4_quantize(x)
    assert scale.tolist() == [[127]], "floor(log2(7.9)) - 2 = 0"
    assert formats.mxfp4_dequantize(packed, scale)[0, :3].tolist() == [6.0, -2.0, 0.5]


def test_e8m0_has_nan_at_255_and_no_zero() -> None:
    decoded = formats.e8m0_decode(torch.tensor([0, 127, 254, 255], dtype=torch.uint8))
    assert decoded[:3].tolist() == [2.0**-127, 1.0, 2.0**127]
    assert bool(decoded[3].isnan())


@pytest.mark.parametrize(("shape", "tile", "scales"), [((3, 200), (1, 128), (3, 2)), ((130, 257), (128, 128), (2, 3))])
def test_tile_scales_have_cut_edges(shape: tuple[int, int], tile: tuple[int, int], scales: tuple[int, int]) -> None:
    x = torch.randn(*shape, generator=generator(1))
    q, scale = formats.fp8_quantize_tiles(x, tile)
    assert tuple(scale.shape) == scales
    error = (formats.fp8_dequantize_tiles(q, scale, tile) - x).abs()
    top = formats.expand_scale(scale, tile, shape) * formats.E4M3_MAX
    assert bool((error <= x.abs() * 2.0**-4 + top * 2.0**-18).all())


def test_an_empty_tensor_has_empty_scales() -> None:
    assert formats.fp8_quantize_tiles(torch.zeros(0, 200), (1, 128))[1].shape == (0, 2)
    assert formats.nvfp4_quantize(torch.zeros(0, 64), torch.ones(1))[1].shape == (0, 4)
