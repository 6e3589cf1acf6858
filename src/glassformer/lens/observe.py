"""Collecting the attention weights of a model that runs as usual, for the length of a `with`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from torch import nn

from glassformer.base.shapes import Float, Tensor
from glassformer.base.typed import expect
from glassformer.nn.observe import Attended, watch_attention
from glassformer.nn.transformer import Transformer

Seen = dict[str, Float[Tensor, "B H T S"]]
"""Module name, as in "decoder.blocks.1.cross_attention", to the weights of the last forward."""


@contextmanager
def observe(model: Transformer) -> Generator[Seen]:
    """Collect every attention's weights [B, H, T, S] under its own rule, for the length of the `with`.

    Outputs are computed as usual, so logits are bit-equal; the weights are computed separately by the rule's equation,
    before dropout. Rows of softmax and linear attention sum to 1, or to 0 if all keys are masked. Afterwards the model
    is exactly as before.

    >>> import torch
    >>> from glassformer import ModelConfig, StackConfig, Transformer, observe
    >>> model = Transformer(ModelConfig(vocab_size=9, decoder=StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=8)))
    >>> with observe(model) as seen:
    ...     _ = model(torch.tensor([[1, 2, 3]]))
    >>> {name: tuple(weights.shape) for name, weights in seen.items()}
    {'decoder.blocks.0.self_attention': (1, 2, 3, 3)}
    """
    expect(model, nn.Module, "The argument of observe()", "Give it the model: with observe(model) as seen.")
    seen: Seen = {}

    def note(call: Attended) -> None:
        seen[call.name] = call.attention.weigh(call.q, call.k, call.mask, scale=call.scale)

    with watch_attention(model, note):
        yield seen
