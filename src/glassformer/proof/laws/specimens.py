"""Small random models and padded batches to test laws on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from glassformer.base.shapes import Bool, Int, Tensor
from glassformer.nn.config import ModelConfig, StackConfig
from glassformer.nn.transformer import Transformer
from glassformer.proof.laws.law import Setting

VOCAB = 11
PADDINGS = ("right", "left", "holes")
"""Where the padding of a row may be; "holes": between its tokens."""
Module = TypeVar("Module", bound=nn.Module)


def stack(**settings: Any) -> StackConfig:
    """Return a config of two blocks with four heads of width four and no dropout, changed by `settings`."""
    small: dict[str, Any] = {"d_model": 16, "n_heads": 4, "n_layers": 2, "d_ff": 24, "dropout": 0.0, "max_len": 24}
    return StackConfig(**(small | settings))


def model(setting: Setting, shape: str, *, own: dict[str, Any] | None = None, **settings: Any) -> Transformer:
    """Return a random model of a shape ("encoder", "decoder", "encoder-decoder").

    `own` are settings of the whole model.
    """
    whole: dict[str, Any] = {"vocab_size": VOCAB} | {side: stack(**settings) for side in shape.split("-")}
    return scramble(Transformer(ModelConfig(**(whole | (own or {})))), setting).eval()


def scramble(module: Module, setting: Setting) -> Module:
    """Move the module to the setting's device and dtype, and draw every parameter from a normal distribution.

    Its standard deviation is 0.4. Zeros and ones would hide mistakes.
    """
    module = module.to(setting.device, setting.dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64).mul(0.4))
    return module


def normal(setting: Setting, *shape: int) -> Tensor:
    """Return normal random numbers that require a gradient."""
    return torch.randn(*shape, dtype=torch.float64).to(setting.device, setting.dtype).requires_grad_()


def tokens(setting: Setting, *shape: int) -> Int[Tensor, "..."]:
    """Return random ids."""
    return torch.randint(VOCAB, shape).to(setting.device)


def padded(
    setting: Setting, rows: Sequence[Tensor], width: int, where: str
) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Put rows of ids into one tensor, padded as `where` says (see `PADDINGS`), and return it with its keep mask.

    Padding holds random ids, since no result may depend on them.
    """
    keep = torch.zeros(len(rows), width, dtype=torch.bool)
    for row, ids in zip(keep, rows, strict=True):
        n = len(ids)
        places = {"right": torch.arange(n), "left": torch.arange(width - n, width), "holes": torch.randperm(width)[:n]}
        row[places[where]] = True
    held = torch.randint(VOCAB, keep.shape)
    held[keep] = torch.cat([ids.cpu() for ids in rows])
    return held.to(setting.device), keep.to(setting.device)
