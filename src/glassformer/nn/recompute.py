"""Recomputation: memory of the backward pass for time."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from torch import nn

from glassformer.base.errors import ConfigError
from glassformer.base.typed import expect, is_of
from glassformer.nn.stack import Stack


@contextmanager
def recompute(model: nn.Module, blocks: int = 1) -> Generator[None]:
    """Inside the `with`, a forward pass keeps only the input of each group of `blocks` blocks.

    Source: Chen et al. 2016, section 4. The backward pass recomputes each group with the same random numbers and
    arithmetic, so gradients are equal bit by bit, at the cost of one more forward pass. If each of n blocks keeps a
    bytes, memory falls from n a to about (n / blocks) x + blocks a, where x is the size of the residual stream. Groups
    of 1 are best if x is far smaller than a, as in most models. 0 recomputes nothing. The backward pass may run after
    the `with`, when the model is exactly as before. Forward passes without gradients, as in decoding, do not change.

    >>> import torch
    >>> from glassformer import ModelConfig, StackConfig, Transformer, recompute
    >>> model = Transformer(ModelConfig(vocab_size=9, decoder=StackConfig(d_model=8, n_heads=2, n_layers=4, d_ff=8)))
    >>> with recompute(model):
    ...     model(torch.tensor([[1, 2, 3]])).sum().backward()
    """
    expect(model, nn.Module, "model of recompute", "Give a Transformer, or a part of one.")
    if not is_of(blocks, (int,)) or blocks < 0:
        raise ConfigError(
            f"recompute is the number of blocks in a group, or 0 for none; got {blocks!r}. Try recompute=1."
        )
    stacks = [each for each in model.modules() if isinstance(each, Stack)] if blocks else []
    before = [stack.recompute for stack in stacks]
    try:
        for stack in stacks:
            stack.recompute = int(blocks)
        yield
    finally:
        for stack, own in zip(stacks, before, strict=True):
            stack.recompute = own
