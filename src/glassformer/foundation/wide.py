"""float64 wherever a tensor is: not every device has it."""

from __future__ import annotations

from glassformer.foundation.shapes import Float, Tensor

WITHOUT = ("mps",)
"""Kinds of devices that have no float64."""


def in_float64(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The same numbers in float64: where they are, or on the processor where their device has none."""
    return (x.cpu() if x.device.type in WITHOUT else x).double()
