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

from glassformer.decode.compiled import compile_steps
from glassformer.foundation.errors import ConfigError
from glassformer.foundation.registry import lookup
from glassformer.foundation.runtime import has_bfloat16, has_int8
from glassformer.foundation.shapes import Tensor
from glassformer.model.joint import Joint
from glassformer.model.transformer import Transformer
from glassformer.parts import Attention, Block, Experts, Head
from glassformer.parts.int8 import Int8Linear
from glassformer.parts.packed import PackedLinear

Make = Callable[[Tensor, Tensor | None], nn.Module]
"""A map from its weight and bias."""


def prepared(model: Transformer, precision: str, cache: str = "exact", *, compile: bool = False) -> Transformer:
    """The model itself for "float32", else a copy to decode with; the model stays as it is.

    "float32": as it was trained, bit for bit. "bfloat16": everything in bfloat16. "int8": linear maps and the head in
    whole numbers of 8 bits (`Int8Linear`), keys and values in bfloat16 where the machine has it in hardware, all else
    as it was. "auto": bfloat16 where the machine has it in hardware, else as it was trained. With `compile` steps of
    one token are compiled code (`CompiledSteps`), also of a copy.

    `cache`: keys and values as they are ("exact"), or in 8 bits ("int8", `parts/rounded.py`). A committee is one of
    members made ready.
    Errors: `ConfigError` for another name, and for what this machine or the model lacks.
    """
    if isinstance(model, Joint):
        return Joint([prepared(each, precision, cache, compile=compile) for each in model.members])
    made = lookup(PRECISIONS, precision, "decode.precision")(model)
    if lookup(CACHES, cache, "decode.cache"):
        check_rounds(made, compile)
        made = sharing_weights(model) if made is model else made
        made.rounds_cache = True
    if not compile:
        return made
    return compile_steps(sharing_weights(model) if made is model else made)


def check_rounds(model: Transformer, compile: bool) -> None:
    """Refuse keys in 8 bits where none are held so. Errors: `ConfigError`."""
    if model.config.stack.attention_rule == "linear":
        raise ConfigError("Linear attention keeps sums, which are not rounded. Leave decode.cache='int8' out.")
    if compile:
        raise ConfigError("Compiled steps read keys as they are. Set decode.compile=false, or decode.cache='exact'.")


def sharing_weights(model: Transformer) -> Transformer:
    """A copy with the same tensors."""
    return copy.deepcopy(model, {id(each): each for each in (*model.parameters(), *model.buffers())})


def as_trained(model: Transformer) -> Transformer:
    """The model itself."""
    return model


def in_bfloat16(model: Transformer) -> Transformer:
    """A copy in bfloat16; on a processor that multiplies it, its maps are laid out for that."""
    made = copy.deepcopy(model).to(torch.bfloat16)
    for attention in self_attentions(made):
        join_projections(attention)
    if (device := device_of(made)).type == "cpu" and has_bfloat16(device):
        replace_maps(made, PackedLinear)
    return made


def in_int8(model: Transformer) -> Transformer:
    """A copy whose linear maps are `Int8Linear`. Errors: `ConfigError` where the machine has no product for them."""
    if not has_int8(device := device_of(model)):
        raise ConfigError(
            "decode.precision='int8' needs a processor that multiplies 8-bit numbers (AVX-512 VNNI); "
            f"the model is on {device}, which does not. Take bfloat16 or float32."
        )
    made = copy.deepcopy(model).float()
    for attention in self_attentions(made):
        join_projections(attention)
    replace_maps(made, Int8Linear)
    if has_bfloat16(device):
        for each in made.modules():
            if isinstance(each, Attention):
                each.arithmetic = torch.bfloat16
    return made


def automatic(model: Transformer) -> Transformer:
    """In bfloat16 where that is fast."""
    return in_bfloat16(model) if has_bfloat16(device_of(model)) else model


PRECISIONS: dict[str, Callable[[Transformer], Transformer]] = {
    "float32": as_trained,
    "bfloat16": in_bfloat16,
    "int8": in_int8,
    "auto": automatic,
}


CACHES = {"exact": False, "int8": True}
"""Whether keys and values are rounded."""


def device_of(model: Transformer) -> torch.device:
    """Where its parameters are."""
    return next(model.parameters()).device


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


def replace_maps(module: nn.Module, make: Make) -> None:
    """Another map in place of each linear one within, the head's too; a router, which chooses experts, stays exact.

    The matrix of a tied embedding, which is only looked up, stays as well.
    """
    for name, child in module.named_children():
        if not isinstance(child, nn.Linear):
            replace_maps(child, make)
        elif not isinstance(module, Experts):
            setattr(module, name, make(child.weight, child.bias))
    if isinstance(module, Head):
        module.rounded = make(module.weight, module.bias)
