"""torch.nn.functional.conv1d with groups=channels, tokens transposed there and back, in float32.

In 16 bits the library rounds the sum before silu, which the contract does not allow. So 16-bit operands are widened; a
GPU may multiply them as TF32, which holds them exactly, and sums in float32.
"""

import contextlib

import torch
import torch.nn.functional as f


def _products(dtype: torch.dtype) -> contextlib.AbstractContextManager[object]:
    """Have a GPU multiply float32 as it is, and 16-bit operands, which TF32 holds exactly, as TF32."""
    return torch.backends.cudnn.flags(enabled=True, allow_tf32=dtype != torch.float32)


def run(
    x: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor, silu: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return y [num_seqs, num_tokens, num_channels] and the new state [num_seqs, width - 1, num_channels]."""
    known = torch.cat([conv_state, x], 1)
    new_state = known[:, x.shape[1] :].contiguous()
    if x.numel() == 0:
        return torch.empty(x.shape, dtype=x.dtype, device=x.device), new_state
    wide, taps = known.transpose(1, 2).float(), weight.float().unsqueeze(1)
    with _products(x.dtype):
        z = f.conv1d(wide, taps, groups=weight.shape[0])
    return (f.silu(z) if silu else z).transpose(1, 2).contiguous().to(x.dtype), new_state
