"""torch's optimizers without its compiler, whose import takes longer than a hundred steps of a small model."""

from __future__ import annotations

import inspect

import torch
from torch.optim import Optimizer


class Uncompiled(Optimizer):
    """An optimizer without torch's decorators, which import its compiler only to exclude these functions from it."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)


class AdamW(Uncompiled, torch.optim.AdamW):
    """torch's AdamW (Loshchilov and Hutter 2019), equal to the bit."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))  # pyright: ignore[reportAssignmentType]


class Adafactor(Uncompiled, torch.optim.Adafactor):
    """torch's Adafactor (Shazeer and Stern 2018), equal to the bit."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.Adafactor.step))  # pyright: ignore[reportAssignmentType]
