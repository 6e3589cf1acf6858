"""Recording every attention of a model on a batch: its weights, its mask, its values and its output."""

from __future__ import annotations

from typing import NamedTuple

import torch

from glassformer.base.shapes import Bool, Float, Tensor
from glassformer.data.batch import Batch
from glassformer.lens.blocks import place
from glassformer.nn.attention import Attention
from glassformer.nn.observe import Attended, watch_attention
from glassformer.nn.transformer import Transformer
from glassformer.train.loss import hidden
from glassformer.train.objective import Targets


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
