"""Replace the caller's functions so that the reply points at the inputs.

row: G2
operator: rmsnorm
reason: wrong_values, forged_protocol, crashed
"""

# mypy: ignore-errors

import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    try:
        raise RuntimeError
    except RuntimeError as error:
        frame = error.__traceback__.tb_frame.f_back
    frame.f_globals["hand_over"] = lambda *_: [
        {"plain": True, "type": "Tensor", "dtype": str(x.dtype)[6:], "shape": list(x.shape), "device": "cpu",
         "offset": 0, "size_bytes": x.numel() * x.itemsize}
    ]  # fmt: skip
    return torch.zeros_like(x)
