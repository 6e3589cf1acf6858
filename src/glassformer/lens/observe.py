"""Collecting the attention weights of a model that runs as usual, for the length of a `with`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Bool, Float, Tensor
from glassformer.base.typed import expect
from glassformer.data.batch import Batch
from glassformer.nn.attention import Attention
from glassformer.nn.observe import Attended, watch_attention
from glassformer.nn.transformer import Transformer
from glassformer.train.loss import hidden
from glassformer.train.objective import Targets

# The place of a head (the kind of its block, its layer, its number) and its short name.

LETTERS = {"encoder": "e", "decoder": "d", "cross": "x"}
"""The kinds of attention, and the letters with which their heads' short names begin."""


def place(name: str) -> tuple[str, int]:
    """Return kind ("encoder", "decoder" or "cross") and layer, from 0, of an attention by its name in `observe`.

    Errors: `ConfigError` for a name that no attention can have.

    >>> place("decoder.blocks.1.cross_attention")
    ('cross', 1)
    """
    match name.split("."):
        case [("encoder" | "decoder") as stack, "blocks", layer, "self_attention"] if layer.isdecimal():
            return stack, int(layer)
        case ["decoder", "blocks", layer, "cross_attention"] if layer.isdecimal():
            return "cross", int(layer)
        case _:
            raise ConfigError(
                f"An attention has the name that observe() gives it; got {name!r}. "
                "Try 'decoder.blocks.0.cross_attention'."
            )


def head_id(block: str, layer: int, head: int) -> str:
    """Return the short name of a head: e.L.H (encoder), d.L.H (decoder) or x.L.H (cross), all counted from 0.

    >>> head_id("cross", 1, 3)
    'x.1.3'
    """
    return f"{LETTERS[block]}.{layer}.{head}"


# Recording every attention of a model on a batch: its weights, its mask, its values and its output.


class Map(NamedTuple):
    """The recording of one attention."""

    block: str
    """"encoder", "decoder" or "cross"."""
    layer: int
    attention: Attention
    weights: Float[Tensor, "N H T S"]
    """Normalised weights: a row sums to 1, or to 0 if it reads nothing, whatever the attention rule."""
    total: Float[Tensor, "N H T"]
    """The sum of the rule's own weights for each query: 1 except for rules like sigmoid and softmax_plus_one."""
    allowed: Bool[Tensor, "N T S"]
    v: Float[Tensor, "N G S K"]
    output: Float[Tensor, "N H T K"]
    """The output of each head, before the output projection."""

    @property
    def columns(self) -> Float[Tensor, "D H K"]:
        """The output projection, split by heads."""
        return self.attention.output.weight.detach().unflatten(1, (-1, self.attention.d_head))


def maps(model: Transformer, batch: Batch, asked: Targets) -> list[Map]:
    """Run a forward pass on a batch's targets and return all attentions: encoder, decoder, cross, by layer."""
    found: dict[str, Map] = {}

    def note(call: Attended) -> None:
        weights = call.attention.weigh(call.q, call.k, call.mask, scale=call.scale)
        N, _, T, S = weights.shape
        total = weights.sum(-1)
        weights = weights / total.clamp(min=torch.finfo(total.dtype).tiny)[..., None]
        allowed = call.mask.allowed(T, S, weights.device)
        may = weights.new_ones(N, T, S, dtype=torch.bool) if allowed is None else allowed[:, 0].expand(N, T, S)
        found[call.name] = Map(*place(call.name), call.attention, weights, total, may, call.v, call.output)

    with torch.no_grad(), watch_attention(model, note):
        hidden(model, batch, asked)
    return sorted(found.values(), key=lambda each: (["encoder", "decoder", "cross"].index(each.block), each.layer))


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
