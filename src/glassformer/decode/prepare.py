"""Preparing a model for faster decoding: weights laid out for it, also in lower precision, and steps in C++.

Decoding one text is limited by memory bandwidth, because each step reads every weight once. bfloat16 halves the bytes
of float32; int8 takes a quarter.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeGuard, cast

import torch
from torch import nn

from glassformer.base.errors import ConfigError
from glassformer.base.registry import lookup
from glassformer.base.runtime import has_bfloat16
from glassformer.base.shapes import Tensor
from glassformer.decode.compiled import compile_steps
from glassformer.decode.native_stack import with_native_stacks
from glassformer.fast.compiler import WANTED, asked_for, compiler, library
from glassformer.fast.native import CPP, has_cpp
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block
from glassformer.nn.feed_forward import Experts
from glassformer.nn.int8 import Int8Linear
from glassformer.nn.joint import Joint
from glassformer.nn.native_linear import NativeLinear
from glassformer.nn.packed import PackedLinear, can_pack
from glassformer.nn.transformer import Transformer
from glassformer.nn.vocabulary import Head

Make = Callable[[Tensor, Tensor | None], nn.Module]
"""Makes a linear map from weight and bias."""


def prepared(model: Transformer, precision: str, cache: str = "exact", *, compile: bool = False) -> Transformer:
    """Return a copy of the model for decoding, or the model itself if nothing changes. The model is not modified.

    `precision`: "float32" keeps the weights as trained. "bfloat16" rounds those of linear maps and the head
    (`NativeLinear`), and on other devices than a CPU, or without a C++ compiler, everything. "int8" quantises linear
    maps and the head to 8 bits (`Int8Linear`). "auto" is bfloat16 if the machine has it in hardware, else float32.

    On a CPU, stacks run in C++ where it can (`NativeStack`). Sums have another order there, so last bits of the results
    may differ.

    `cache`: "exact" holds keys and values as they are, "int8" in 8 bits (`nn/rounded.py`). With `compile`, steps run
    as code compiled by torch instead (`CompiledSteps`). For a committee, every member is prepared. Errors:
    `ConfigError` for an unknown name, and for what this machine or the model does not support.
    """
    if isinstance(model, Joint):
        return Joint([prepared(each, precision, cache, compile=compile) for each in model.members])
    made = lookup(PRECISIONS, precision, "decode.precision")(model)
    if lookup(CACHES, cache, "decode.cache"):
        check_rounds(made, compile)
        made = sharing_weights(model) if made is model else made
        made.rounds_cache = True
    if compile:
        return compile_steps(sharing_weights(model) if made is model else made)
    return made if made is model else with_native_stacks(made)


def check_rounds(model: Transformer, compile: bool) -> None:
    """Refuse an 8-bit cache for linear attention and for compiled steps. Errors: `ConfigError`."""
    if model.config.stack.attention_rule == "linear":
        raise ConfigError(
            "decode.cache='int8' rounds keys and values; linear attention caches none. Set decode.cache='exact'."
        )
    if compile:
        raise ConfigError("Compiled steps need an exact KV cache. Set decode.compile=false, or decode.cache='exact'.")


def sharing_weights(model: Transformer) -> Transformer:
    """Copy the modules of a model, sharing its tensors."""
    return copy.deepcopy(model, {id(each): each for each in (*model.parameters(), *model.buffers())})


def in_float32(model: Transformer) -> Transformer:
    """Return a copy with maps for few rows if all weights are here, on a CPU, in float32; else the model itself."""
    weight = next(model.parameters())
    cut = hasattr(model, "unshard")  # over processes, by FSDP, which lets no module be copied
    if cut or weight.device.type != "cpu" or weight.dtype != torch.float32:
        return model
    if has_cpp():
        made = sharing_weights(model)
        replace_maps(made, NativeLinear)
        return made
    return packed(sharing_weights(model)) if can_pack(weight.device) else model


def in_bfloat16(model: Transformer) -> Transformer:
    """Return a copy with maps in bfloat16; with everything in it where our C++ cannot read them."""
    device = device_of(model)
    if device.type == "cpu" and has_cpp():
        made = copy.deepcopy(model).float()
        replace_maps(made, lambda weight, bias: NativeLinear(weight.detach().bfloat16(), bias))
        return made
    made = copy.deepcopy(model).to(torch.bfloat16)
    if has_bfloat16(device) and can_pack(device):
        return packed(made)
    for attention in self_attentions(made):
        join_projections(attention)
    return made


def packed(made: Transformer) -> Transformer:
    """Pack the maps of a model for oneDNN, and return it."""
    for attention in self_attentions(made):
        join_projections(attention)
    replace_maps(made, PackedLinear)
    return made


def in_int8(model: Transformer) -> Transformer:
    """Return a copy whose linear maps are `Int8Linear`.

    Errors: `ConfigError` off the CPU and without a compiler, and as `library`.
    """
    device = device_of(model)
    if device.type != "cpu":
        raise ConfigError(
            f"decode.precision='int8' is for a CPU; the model is on {device}. Use 'bfloat16', or set "
            "training.device='cpu'."
        )
    if compiler() is None:
        raise ConfigError(
            f"decode.precision='int8' needs a C++ compiler, {WANTED}; none was found{asked_for()}. Install one (on "
            "Debian or Ubuntu: apt-get install g++), or use 'float32'."
        )
    library(CPP)  # now, where the user can be told
    made = copy.deepcopy(model).float()
    for attention in self_attentions(made):
        join_projections(attention)
    replace_maps(made, Int8Linear)
    return made


def chosen_precision(asked: str, device: torch.device) -> tuple[str, str]:
    """Return the precision for decoding, and the reason. "auto": bfloat16 if that is fast here, else float32."""
    if asked != "auto":
        return asked, f"{asked}, as decode.precision says"
    if has_bfloat16(device):
        return "bfloat16", "bfloat16, as this processor has bfloat16 arithmetic"
    return "float32", "float32, as this processor has no bfloat16 arithmetic"


def automatic(model: Transformer) -> Transformer:
    """Prepare a model in the precision that is chosen for its device."""
    precision, _ = chosen_precision("auto", device_of(model))
    return in_bfloat16(model) if precision == "bfloat16" else in_float32(model)


PRECISIONS: dict[str, Callable[[Transformer], Transformer]] = {
    "float32": in_float32,
    "bfloat16": in_bfloat16,
    "int8": in_int8,
    "auto": automatic,
}


CACHES = {"exact": False, "int8": True}
"""Whether keys and values are rounded."""


def device_of(model: Transformer) -> torch.device:
    """The device of a model's parameters."""
    return next(model.parameters()).device


def self_attentions(model: Transformer) -> list[Attention]:
    """The self-attention of each block."""
    stacks = [stack for stack in (model.encoder, model.decoder) if stack is not None]
    return [cast(Attention, cast(Block, each).self_attention.branch) for stack in stacks for each in stack.blocks]


def join_projections(attention: Attention) -> None:
    """Join the maps of query, key and value into one, so that a step calls one product instead of three.

    They stay as they are if one of them computes something else.
    """
    three = [attention.query, attention.key, attention.value]
    if not all(is_plain(each) for each in three):
        return
    weight = torch.cat([each.weight for each in three])
    biases = [bias for each in three if (bias := cast(Tensor | None, each.bias)) is not None]
    joined = nn.Linear(weight.shape[1], weight.shape[0], bias=bool(biases), device="meta")
    joined.weight = nn.Parameter(weight, requires_grad=False)
    if biases:
        joined.bias = nn.Parameter(torch.cat(biases), requires_grad=False)
    attention.joined = joined
    for name in ("query", "key", "value"):
        delattr(attention, name)


def is_plain(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a module is a linear map and nothing more: no subclass, no `forward` of its own, no hooks."""
    hooked = module._forward_hooks or module._forward_pre_hooks  # pyright: ignore[reportPrivateUsage]
    return type(module) is nn.Linear and "forward" not in vars(module) and not hooked


def replace_maps(module: nn.Module, make: Make) -> None:
    """Replace each linear map in a module, including the head's, by one from `make`; routers of experts stay exact.

    The matrix of a tied embedding, which is only looked up, stays too; so does a map that computes something else.
    """
    for name, child in module.named_children():
        if not is_plain(child):
            replace_maps(child, make)
        elif not isinstance(module, Experts):
            setattr(module, name, make(child.weight, child.bias))
    if isinstance(module, Head):
        module.faster = make(module.weight, module.bias)
