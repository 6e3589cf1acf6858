"""torch's optimizers without its compiler: to import that takes longer than to train a small model a hundred steps."""

from __future__ import annotations

import inspect

import torch
from torch.optim import Optimizer


class Uncompiled(Optimizer):
    """An optimizer as it is behind torch's decorators, which import its compiler to say that these are not for it."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)


class AdamW(Uncompiled, torch.optim.AdamW):
    """AdamW (Loshchilov and Hutter 2019) of torch, to the bit."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))  # pyright: ignore[reportAssignmentType]


class Adafactor(Uncompiled, torch.optim.Adafactor):
    """Adafactor (Shazeer and Stern 2018) of torch, to the bit."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.Adafactor.step))  # pyright: ignore[reportAssignmentType]
