"""torch.einsum with interpolation weights a box."""

import torch

COMPILES = True


def run(
    x: torch.Tensor, rois: torch.Tensor, spatial_scale: float = 1.0, pooled_size: int = 7, sampling_ratio: int = 2
) -> torch.Tensor:
    """Pool boxes [num_rois, 5] of x [batch, height, width, channels] into pooled_size bins a side."""
    edges = rois[:, 1:] * spatial_scale - 0.5
    down = _weights(edges[:, 1], edges[:, 3], x.shape[1], pooled_size, sampling_ratio)
    across = _weights(edges[:, 0], edges[:, 2], x.shape[2], pooled_size, sampling_ratio)
    rows = torch.einsum("nph,nhwc->npwc", down, x[rois[:, 0].long()].float())
    return torch.einsum("nqw,npwc->npqc", across, rows).to(x.dtype).contiguous()


def _weights(low: torch.Tensor, high: torch.Tensor, size: int, bins: int, ratio: int) -> torch.Tensor:
    """Return [num_rois, bins, size]: a hat one pixel wide around every sample, averaged over a bin."""
    steps = torch.arange(bins * ratio, device=low.device) + 0.5
    at = low[:, None] + steps * ((high - low) / (bins * ratio))[:, None]
    pixels = torch.arange(size, device=low.device)
    hat = (1 - (at.clamp(0, size - 1)[..., None] - pixels).abs()).clamp_min(0)
    inside = ((at >= -1) & (at <= size)).unsqueeze(-1)
    return (hat * inside).unflatten(1, (bins, ratio)).mean(2)
