"""Put speed on a model for decoding: weights laid out for it, also in lower precision, steps in C++ or as CUDA graphs.

Decoding one text is limited by memory bandwidth, because each step reads every weight once. bfloat16 halves the bytes
of float32; int8 takes a quarter.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Iterator
from functools import cache
from typing import TypeGuard, cast

import torch
from torch import nn

from glassformer.base.errors import ConfigError
from glassformer.base.registry import lookup
from glassformer.base.runtime import has_bfloat16
from glassformer.base.shapes import Float, Int, Keys, Queries, Tensor, Values
from glassformer.decode.filters import Choose
from glassformer.decode.prepare import Kernels, chosen_precision, device_of, plain, sharing_weights, with_cache
from glassformer.decode.rows import Emitted, Rows, Stop
from glassformer.fast import graphs
from glassformer.fast import native as likely
from glassformer.fast.compiled import compile_steps
from glassformer.fast.compiler import HOW, WANTED, asked_for, compiler, library, why_not
from glassformer.fast.native import CPP, Int8Linear, NativeLinear, PackedLinear, can_pack, has_cpp
from glassformer.fast.stack import with_native_stacks
from glassformer.fast.training import SWITCH
from glassformer.nn.attention import Attention, LayerCache
from glassformer.nn.block import Block
from glassformer.nn.ensemble import Ensemble
from glassformer.nn.feed_forward import Experts
from glassformer.nn.heads import Head
from glassformer.nn.positions import Rotation, rotate
from glassformer.nn.transformer import Transformer

LOG = logging.getLogger(__name__)
Make = Callable[[Tensor, Tensor | None], nn.Module]
"""Makes a linear map from weight and bias."""


COST = "decoding a text on a CPU takes 1.5 to 3 times as long"


def for_decoding(
    model: Transformer, precision: str = "float32", cache: str = "exact", *, compile: bool = False
) -> Transformer:
    """Return the model with parts exchanged for faster equals; the weights are shared, the given model is not modified.

    So speed is taken off by going back to the given model. `precision`: "float32" keeps the weights as trained.
    "bfloat16" rounds those of linear maps and the head (`NativeLinear`), and on other devices than a CPU, or without a
    C++ compiler, everything. "int8" quantises linear maps and the head to 8 bits (`Int8Linear`). "auto" is bfloat16 if
    the machine has it in hardware, else float32.

    On a CPU, stacks run in C++ where it can (`StackInCpp`); sums have another order there, so last bits of the results
    may differ. On CUDA, steps of `generate` are captured as graphs and replayed (`graphs.py`).

    `cache`: "exact" holds keys and values as they are, "int8" in 8 bits (`Rounded`). With `compile`, steps run
    as code compiled by torch instead (`CompiledStack`). For an ensemble, every member is prepared. Errors:
    `ConfigError` for an unknown name, and for what this machine or the model does not support.

    >>> from glassformer import ModelConfig, StackConfig, Transformer, fast, generate
    >>> stack = StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=8, causal=True)
    >>> ready = fast.for_decoding(Transformer(ModelConfig(vocab_size=9, decoder=stack)))
    >>> len([*generate(ready, prompts=[[7, 8]], max_new_tokens=3, eos=-1)])
    3
    """
    off = os.environ.get(SWITCH, "1").strip() == "0"
    if off:
        tell_off(f"off, as {SWITCH}=0 says")
    if off and not compile:
        return plain(model, precision, cache)
    if isinstance(model, Ensemble):
        made = Ensemble([for_decoding(each, precision, cache, compile=compile) for each in model.members])
        return made if off else with_kernels(made)
    made = plain(model, precision) if off else lookup(PRECISIONS, precision, "decode.precision")(model)
    made = with_cache(model, made, cache, compile=compile)
    if not off and device_of(model).type == "cpu" and not has_cpp() and (reason := why_not(CPP)):
        tell_off(reason)
    if made is model and not compile and (device_of(model).type not in graphs.RECORDERS or hasattr(model, "unshard")):
        return made
    made = sharing_weights(made) if made is model else made
    made = compile_steps(made) if compile else with_native_stacks(made)
    return made if off else with_kernels(made)


class Fast(Kernels):
    """The `Kernels` of `for_decoding`: our C++ on a CPU, CUDA graphs on a device that has them."""

    def log_sums(self, logits: Float[Tensor, "rows V"]) -> Float[Tensor, "rows 1"]:
        """As `Kernels.log_sums`."""
        return likely.log_sums(logits) if likely.can_look_at(logits) else super().log_sums(logits)

    def largest(self, logits: Float[Tensor, "rows V"], k: int) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
        """As `Kernels.largest`."""
        return likely.largest(logits, k) if likely.can_look_at(logits, k) else super().largest(logits, k)

    def write(
        self, model: Transformer, rows: Rows, choose: Choose, eos: int, stop: Stop | None
    ) -> Iterator[Emitted] | None:
        """As `Kernels.write`."""
        return graphs.write(model, rows, choose, eos, stop)


KERNELS = Fast()


def with_kernels(made: Transformer) -> Transformer:
    """Put the kernels on a model, and return it."""
    made.kernels = KERNELS
    return made


@cache
def tell_off(reason: str) -> None:
    """Say once that our C++ is off."""
    LOG.info(f"fast: {reason}; {COST}")


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
            f"decode.precision='int8' needs a C++ compiler, {WANTED}; none was found{asked_for()}. Install one "
            f"({HOW}), or use 'float32'."
        )
    library(CPP)  # now, where the user sees an error
    made = copy.deepcopy(model).float()
    for attention in self_attentions(made):
        join_projections(attention)
    replace_maps(made, Int8Linear)
    return made


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


def self_attentions(model: Transformer) -> list[Attention]:
    """The self-attention of each block."""
    stacks = [stack for stack in (model.encoder, model.decoder) if stack is not None]
    return [cast(Attention, cast(Block, each).self_attention.branch) for stack in stacks for each in stack.blocks]


class JoinedAttention(Attention):
    """Self-attention with one map, `joined`, for query, key and value: a step calls one product in place of three."""

    exchanges = Attention
    joined: nn.Module

    def projections(
        self,
        x: Float[Tensor, "B T D"],
        source: Float[Tensor, "B M D"],
        rotation: Rotation | None,
        cache: LayerCache | None,
    ) -> tuple[Queries, Keys, Values]:
        """As `Attention.projections`, of x itself."""
        assert source is x, "the maps of self-attention are joined"
        inner, shared = self.n_heads * self.d_head, self.n_kv_heads * self.d_head
        q, k, v = (self.heads(each) for each in self.joined(x).split([inner, shared, shared], dim=-1))
        q, k = rotate(self.query_norm(q), rotation), rotate(self.key_norm(k), rotation)
        return (q, k, v) if cache is None else (q, *cache.append(k, v))


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
    joined.train(attention.training)
    joined.weight = nn.Parameter(weight, requires_grad=False)
    if biases:
        joined.bias = nn.Parameter(torch.cat(biases), requires_grad=False)
    attention.__class__ = JoinedAttention
    cast(JoinedAttention, attention).joined = joined
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
            setattr(module, name, make(child.weight, child.bias).train(child.training))
    if isinstance(module, Head):
        module.faster = make(module.weight, module.bias).train(module.training)
