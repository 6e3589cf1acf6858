"""What every attention of a model did with a batch: its weights, what each query might have read, and its values."""

from __future__ import annotations

from typing import NamedTuple

import torch

from glassformer.data.batch import Batch
from glassformer.foundation.shapes import Bool, Float, Tensor
from glassformer.lens.blocks import place
from glassformer.model.transformer import Transformer
from glassformer.parts import Attended, Attention, watch_attention
from glassformer.train.objective import Targets, hidden


class Map(NamedTuple):
    """One attention of a model."""

    block: str
    """"encoder", "decoder" or "cross"."""
    layer: int
    attention: Attention
    weights: Float[Tensor, "N H T S"]
    """Shares of what each query reads: a row sums to 1, or to 0 where it reads nothing, whatever the rule."""
    total: Float[Tensor, "N H T"]
    """What the rule's own weights of each query sum to: 1, but for rules such as sigmoid and softmax_plus_one."""
    allowed: Bool[Tensor, "N T S"]
    v: Float[Tensor, "N G S K"]
    output: Float[Tensor, "N H T K"]
    """What each head gives, before the output map."""

    @property
    def columns(self) -> Float[Tensor, "D H K"]:
        """The output map, cut by heads."""
        return self.attention.output.weight.detach().unflatten(1, (-1, self.attention.d_head))


def maps(model: Transformer, batch: Batch, asked: Targets) -> list[Map]:
    """All attentions of a forward on what the batch asks, encoder first, as the model computes them."""
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
