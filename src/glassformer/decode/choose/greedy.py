"""Greedy decoding's choice: the most likely token."""

from __future__ import annotations

import math

import numpy as np
import torch

from glassformer.base.shapes import Float, Int, Tensor
from glassformer.decode.choose.context import Context
from glassformer.decode.choose.finite import check_numbers


def greedy(logits: Float[Tensor, "B V"], context: Context) -> Int[Tensor, " B"]:
    """Choose the most likely token; among equals, the one with the lowest id.

    Errors: `DataError` if a logit is NaN or +inf. Only the chosen logits are looked at, because argmax takes a NaN
    if there is one.
    """
    logits = logits.detach()
    if logits.device.type == "cpu":  # in NumPy, several times as fast as torch
        values = (logits.float() if logits.dtype == torch.bfloat16 else logits).numpy()  # which has no bfloat16
        best = values.argmax(-1)
        ids, sound = torch.from_numpy(best), (values[np.arange(len(best)), best] < math.inf).all()
    else:
        ids = logits.argmax(-1)
        sound = (logits.gather(-1, ids[:, None]) < math.inf).all()
    if not sound:  # NaN is not below inf
        check_numbers(logits, context)
    return ids
