"""Greedy decoding's choice: the most likely token."""

from __future__ import annotations

import torch

from glassformer.decode.choose.context import Context
from glassformer.foundation.shapes import Float, Int, Tensor


def greedy(logits: Float[Tensor, "B V"], _: Context) -> Int[Tensor, " B"]:
    """Choose the most likely token; among equals, the one with the lowest id."""
    if logits.device.type == "cpu" and logits.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(logits.detach().numpy().argmax(-1))  # NumPy's takes a tenth of the time of torch's
    return logits.max(-1).indices  # the same as torch's argmax, and faster
