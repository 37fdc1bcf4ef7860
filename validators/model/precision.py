"""What a declared weight format costs the original model itself: the budget that a candidate is held to."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch


def _grid(weight: torch.Tensor, *, bits: int, group: int | None) -> torch.Tensor:
    """Round to a symmetric integer grid with one scale a row, or a scale per ``group`` elements of a row."""
    most = 2 ** (bits - 1) - 1
    width = weight.shape[-1]
    pieces = weight if group is None or width % group else weight.reshape(*weight.shape[:-1], width // group, group)
    scale = pieces.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / most
    made: torch.Tensor = ((pieces / scale).round().clamp(-most, most) * scale).reshape(weight.shape)
    return made


def _fp8(weight: torch.Tensor) -> torch.Tensor:
    scale = weight.abs().max().clamp(min=torch.finfo(torch.float32).tiny) / 448
    return (weight / scale).to(torch.float8_e4m3fn).float() * scale


_E2M1 = torch.tensor((0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0))


def _fp4(weight: torch.Tensor) -> torch.Tensor:
    """Round to e2m1 with an e4m3 scale per 16 elements and a float32 one for all."""
    width = weight.shape[-1]
    pieces = weight.reshape(*weight.shape[:-1], width // 16, 16) if width % 16 == 0 else weight[..., None, :]
    largest = pieces.abs().amax(-1, keepdim=True)
    overall = largest.max().clamp(min=torch.finfo(torch.float32).tiny) / (6 * 448)
    scale = (largest / 6 / overall).to(torch.float8_e4m3fn).float() * overall
    units = torch.where(scale > 0, pieces / scale.clamp(min=torch.finfo(torch.float32).tiny), 0.0)
    middles = (_E2M1[1:] + _E2M1[:-1]) / 2
    return (_E2M1[torch.bucketize(units.abs(), middles)] * units.sign() * scale).reshape(weight.shape)


PRECISIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor] | None] = {
    "bfloat16": None,
    "int8": lambda weight: _grid(weight, bits=8, group=None),
    "int4": lambda weight: _grid(weight, bits=4, group=128),
    "float8_e4m3fn": _fp8,
    "nvfp4": _fp4,
}
"""Weight format to what rounds a float32 weight to it; None: the original's own."""


@contextmanager
def rounded(model: torch.nn.Module, precision: str) -> Iterator[None]:
    """Round the matrices of a float32 model to a format for as long as the block lasts.

    Embeddings, the output head and everything with one axis stay as they are, as quantised checkpoints keep them.

    Args:
        model: Its parameters are replaced in place and put back.
        precision: One of ``PRECISIONS``.
    """
    how = PRECISIONS[precision]
    kept: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
    if how is not None:
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2 and not any(one in name for one in ("embed", "lm_head", "wte", "wpe")):
                kept.append((parameter, parameter.data))
                parameter.data = how(parameter.data.float()).to(parameter.dtype)
    try:
        yield
    finally:
        for parameter, data in kept:
            parameter.data = data
