"""Quantise to NVFP4 with a given global scale; the result is exact, bit for bit.

scale = e4m3(amax / (6 * global_scale)) for every 16 elements, code = e2m1(x / (scale * global_scale)); each is one
rounding to nearest, ties to even, of the exact quotient, saturating. The sign bit of a code is that of x, also for
zero, and a block whose scale rounds to zero has codes of magnitude 0.

The laws draw powers of two as global scale. With them correctly rounded float32 division decides every tie like exact
arithmetic, since a quotient that is not a tie lies more than half a unit from one, so that equality can be demanded.
Multiplying by a rounded reciprocal of 6 or of the scale does not have this property, and fails.
"""

import torch

from kb.validators.operators.draws import mixed, structured
from kb.validators.operators.formats import E2M1_MAX, nvfp4_quantize
from kb.validators.operators.spec import (
    DTYPES,
    Arguments,
    Axes,
    Buffer,
    Cost,
    ErrorModel,
    Operator,
    Workload,
    itemsize,
)


def reference(x: torch.Tensor, global_scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return packed codes uint8 [num_tokens, k / 2] and scales float64 [num_tokens, k / 16], both exact."""
    packed, scale = nvfp4_quantize(x, global_scale)
    return packed, scale.to(torch.float64)


def cost(axes: Axes, dtype: str) -> Cost:
    """About 8 operations an element; x read once, half a byte and a sixteenth written for each element."""
    elements = axes["num_tokens"] * axes["hidden_size"]
    moved = elements * itemsize(dtype) + elements // 2 + elements // 16 + 4
    return Cost(flops=8 * elements, essential_bytes=moved)


def _power(low: int, high: int, generator: torch.Generator) -> torch.Tensor:
    """Draw a global scale, float32 [1]: 2^low … 2^high."""
    return torch.exp2(torch.randint(low, high + 1, (1,), generator=generator).to(torch.float32))


def normal(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-6 … 2^6 with blocks of scale 2^-4 … 2^4 in them and some zeros of both signs."""
    tokens, hidden = axes["num_tokens"], axes["hidden_size"]
    row = torch.randint(-6, 7, (tokens, 1), generator=generator)
    block = torch.randint(-4, 5, (tokens, hidden // 16), generator=generator).repeat_interleave(16, 1)
    x = torch.randn(tokens, hidden, generator=generator) * torch.exp2((row + block).to(torch.float32))
    keep = torch.rand(tokens, hidden, generator=generator) > 0.05
    return (x * keep).to(DTYPES[dtype]), _power(-6, -2, generator)


def ties(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Multiples of a quarter of the scale, many midway between two codes, and scales that are ties themselves."""
    tokens, hidden = axes["num_tokens"], axes["hidden_size"]
    shape = (tokens, hidden // 16, 16)
    x = torch.randint(-24, 25, shape, generator=generator).to(torch.float32) / 4
    x[..., 3] = E2M1_MAX
    # 17/16 and 19/16 lie midway between e4m3 neighbours; 1 and 9/8 keep the quarter grid on the codes' ties.
    step = torch.tensor([1.0, 1.125, 17 / 16, 19 / 16])[torch.randint(0, 4, shape[:2], generator=generator)]
    outer = _power(-5, -1, generator)
    return (x * step.unsqueeze(-1) * (32 * outer)).flatten(1).to(DTYPES[dtype]), outer


def extreme(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Blocks of zeros, blocks whose scale is subnormal or underflows, and blocks whose scale saturates."""
    tokens, hidden = axes["num_tokens"], axes["hidden_size"]
    exponent = torch.randint(-14, 13, (tokens, hidden // 16), generator=generator).to(torch.float32)
    gain = torch.where(exponent == 0, torch.zeros_like(exponent), torch.exp2(exponent))
    x = torch.randn(tokens, hidden, generator=generator) * gain.repeat_interleave(16, 1)
    return x.to(DTYPES[dtype]), _power(-1, 1, generator)


def mixed_scale(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Rows of scale 2^-8 … 2^8 behind a nominal one; the last blocks are 16 times the rest."""
    x = mixed((axes["num_tokens"], axes["hidden_size"]), generator)
    return x.to(DTYPES[dtype]), _power(-6, -4, generator)


def structure(axes: Axes, dtype: str, generator: torch.Generator) -> Arguments:
    """Constant, sorted, paired and nearly empty rows: whole blocks of zeros beside dense ones."""
    x = structured((axes["num_tokens"], axes["hidden_size"]), generator)
    return x.to(DTYPES[dtype]), _power(-10, -8, generator)


def quantize_axes(num_tokens: int, hidden_size: int) -> dict[str, int]:
    """Return the axes of a quantiser."""
    return {"num_tokens": num_tokens, "hidden_size": hidden_size}


SPEC = Operator(
    name="quantize_nvfp4",
    summary="scale = e4m3(amax16 / (6 global)), code = e2m1(x / (scale global)), packed two a byte",
    signature="quantize_nvfp4(x, global_scale)",
    axes=("num_tokens", "hidden_size"),
    inputs=(
        Buffer("x", ("num_tokens", "hidden_size"), doc="hidden_size a multiple of 16; finite"),
        Buffer("global_scale", ("1",), "float32", "multiplies on decoding: amax / (6 * 448) of the tensor, say"),
    ),
    outputs=(
        Buffer("packed", ("num_tokens", "hidden_size/2"), "uint8", "e2m1 pairs, even index in the low nibble"),
        Buffer("scale", ("num_tokens", "hidden_size/16"), "float8_e4m3fn", "linear layout"),
    ),
    dtypes=("bfloat16", "float16", "float32"),
    reference=reference,
    condition=None,
    error=ErrorModel(accumulate="float32", c_acc=0, c_out=0),
    cost=cost,
    laws={
        "normal": normal,
        "ties": ties,
        "extreme": extreme,
        "mixed_scale": mixed_scale,
        "structure": structure,
    },
    workloads=(
        Workload(quantize_axes(1, 16), "float32"),
        Workload(quantize_axes(0, 64), "bfloat16"),
        Workload(quantize_axes(7, 272), "float32"),
        Workload(quantize_axes(5, 2048), "bfloat16"),
        Workload(quantize_axes(11, 176), "bfloat16", "ties"),
        Workload(quantize_axes(11, 176), "float32", "ties"),
        Workload(quantize_axes(13, 144), "float16", "extreme"),
        Workload(quantize_axes(13, 144), "bfloat16", "extreme"),
        Workload(quantize_axes(5, 272), "float16", "mixed_scale"),
        Workload(quantize_axes(3, 112), "float32", "mixed_scale"),
        Workload(quantize_axes(9, 96), "bfloat16", "structure"),
        Workload(quantize_axes(8, 2048), "bfloat16", use="target", note="Qwen3.6 expert input, decode"),
        Workload(quantize_axes(4096, 2048), "bfloat16", use="target", note="Qwen3.6 expert input, prefill"),
        Workload(quantize_axes(32768, 512), "bfloat16", use="target", note="Qwen3.6 expert intermediate, prefill"),
    ),
    exact=True,
    source="NVFP4: NVIDIA PTX ISA, cvt to e2m1x2 and block scaling; two-level scale as in ModelOpt",
    baselines=("buckets_compiled", "buckets"),
    rivals=("flashinfer.fp4_quantize", "vllm scaled_fp4_quant"),
)
