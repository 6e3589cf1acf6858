"""Converting tensors to float64, which not every device supports."""

from __future__ import annotations

import torch

from glassformer.base.shapes import Float, Tensor

WITHOUT = ("mps",)
"""Device types without float64."""


def in_float64(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Convert to float64: on the same device, or on the CPU if the device has no float64."""
    return (x.cpu() if x.device.type in WITHOUT else x).double()


def widest(device: torch.device) -> torch.dtype:
    """float64 if the device has it, else float32."""
    return torch.float32 if device.type in WITHOUT else torch.float64
