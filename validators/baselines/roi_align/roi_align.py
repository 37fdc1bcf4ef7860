"""torchvision.ops.roi_align, in float32."""

import torch
from torchvision.ops import roi_align

PACKAGES = ("torchvision",)


def run(
    x: torch.Tensor, rois: torch.Tensor, spatial_scale: float = 1.0, pooled_size: int = 7, sampling_ratio: int = 2
) -> torch.Tensor:
    """Pool boxes [num_rois, 5] of x [batch, height, width, channels] into pooled_size bins a side."""
    planes = x.permute(0, 3, 1, 2).float().contiguous()
    made = roi_align(planes, rois, pooled_size, spatial_scale, sampling_ratio, aligned=True)
    return made.permute(0, 2, 3, 1).contiguous().to(x.dtype)
