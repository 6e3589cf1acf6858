"""A model made ready for decoding: its weights rounded and laid out once, so that a step has less to read.

One text at a time is bound by the memory: a step reads each weight once. bfloat16 has half the bytes of float32, int8
a quarter.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import cast

import torch
from torch import nn

from glassformer.foundation.errors import ConfigError
from glassformer.foundation.registry import lookup
from glassformer.foundation.runtime import has_bfloat16
from glassformer.foundation.shapes import Tensor
from glassformer.model.transformer import Transformer
from glassformer.parts import Attention, Block, Experts, Head
from glassformer.parts.int8 import Int8Linear


def prepared(model: Transformer, precision: str) -> Transformer:
    """The model itself for "float32", else a copy to decode with; the model stays as it is.

    "float32": as it was trained, bit for bit. "bfloat16": all weights in bfloat16. "int8": the weights of linear maps
    and of the head in 8 bits, all else as it was. "auto": bfloat16 where the machine multiplies it in hardware, else
    as it was trained. Errors: `ConfigError` for another name, and for what this machine lacks.
    """
    return lookup(PRECISIONS, precision, "decode.precision")(model)


def as_trained(model: Transformer) -> Transformer:
    """The model itself."""
    return model


def in_bfloat16(model: Transformer) -> Transformer:
    """A copy with all weights in bfloat16; query, key and value of self-attention are one map."""
    made = copy.deepcopy(model).to(torch.bfloat16)
    for attention in self_attentions(made):
        join_projections(attention)
    return made


def in_int8(model: Transformer) -> Transformer:
    """A copy whose linear maps are `Int8Linear`, the head among them. Errors: `ConfigError` on an accelerator."""
    device = next(model.parameters()).device
    if device.type != "cpu":
        raise ConfigError(
            f"decode.precision='int8' has its product on a processor; the model is on {device}. "
            "Take decode.precision='bfloat16', or training.device='cpu'."
        )
    if next(model.parameters()).dtype == torch.float64:
        raise ConfigError("The product of int8 weights takes float32 or bfloat16; the model is in float64. Convert it.")
    made = copy.deepcopy(model)
    for attention in self_attentions(made):
        join_projections(attention)
    round_maps(made)
    if isinstance(made.head, Head):
        made.head.rounded = Int8Linear(made.head.weight, made.head.bias)
    return made


def automatic(model: Transformer) -> Transformer:
    """In bfloat16 where that is fast."""
    return in_bfloat16(model) if has_bfloat16(next(model.parameters()).device) else model


PRECISIONS: dict[str, Callable[[Transformer], Transformer]] = {
    "float32": as_trained,
    "bfloat16": in_bfloat16,
    "int8": in_int8,
    "auto": automatic,
}


def self_attentions(model: Transformer) -> list[Attention]:
    """The self-attention of each block."""
    stacks = [stack for stack in (model.encoder, model.decoder) if stack is not None]
    return [cast(Attention, cast(Block, each).self_attention.branch) for stack in stacks for each in stack.blocks]


def join_projections(attention: Attention) -> None:
    """One map in place of query, key and value: a step calls one product in place of three."""
    three = [attention.query, attention.key, attention.value]
    weight = torch.cat([each.weight for each in three])
    biases = [bias for each in three if (bias := cast(Tensor | None, each.bias)) is not None]
    joined = nn.Linear(weight.shape[1], weight.shape[0], bias=bool(biases), device="meta")
    joined.weight = nn.Parameter(weight, requires_grad=False)
    if biases:
        joined.bias = nn.Parameter(torch.cat(biases), requires_grad=False)
    attention.joined = joined
    for name in ("query", "key", "value"):
        delattr(attention, name)


def round_maps(module: nn.Module) -> None:
    """`Int8Linear` in place of each linear map within; a router, which decides between experts, stays exact."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            if not isinstance(module, Experts):
                setattr(module, name, Int8Linear(child.weight, child.bias))
        else:
            round_maps(child)
