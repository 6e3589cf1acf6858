"""Making a model ready for decoding: in plain torch, unless whoever decodes puts speed on it (`preparing`)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import cast

import torch

from glassformer.base.errors import ConfigError
from glassformer.base.registry import lookup
from glassformer.base.runtime import has_bfloat16
from glassformer.base.shapes import Float, Int, Tensor
from glassformer.decode.filters import Choose
from glassformer.decode.preparing import USED
from glassformer.decode.rows import Emitted, Rows, Stop
from glassformer.nn.ensemble import Ensemble
from glassformer.nn.transformer import Transformer

CACHES = {"exact": False, "int8": True}
"""Whether keys and values are rounded."""


def prepared(model: Transformer, precision: str, cache: str = "exact", *, compile: bool = False) -> Transformer:
    """Return the model for decoding as `preparing` has it, else as `plain`. The model is not modified."""
    return (USED[-1] if USED else plain)(model, precision, cache, compile=compile)


def plain(model: Transformer, precision: str, cache: str = "exact", *, compile: bool = False) -> Transformer:
    """Return a copy of the model for decoding in plain torch, or the model itself if nothing changes.

    `precision`: "float32" keeps the weights as trained, "bfloat16" rounds all of them; "auto" is bfloat16 if the device
    has it in hardware, else float32. "int8" needs our C++. `cache`: "exact" holds keys and values as they are, "int8"
    in 8 bits. Steps are compiled by `fast` only. Errors: `ConfigError`.
    """
    if isinstance(model, Ensemble):
        return Ensemble([plain(each, precision, cache, compile=compile) for each in model.members])
    made = lookup(PLAIN, chosen_precision(precision, device_of(model))[0], "decode.precision")(model)
    if compile:
        raise ConfigError(
            "decode.compile is a part of glassformer.fast, which was not put on. Use fast.for_decoding()."
        )
    return with_cache(model, made, cache, compile=compile)


def with_cache(model: Transformer, made: Transformer, cache: str, *, compile: bool) -> Transformer:
    """Let a prepared model hold keys and values as `cache` says; one that is the `model` itself is copied first.

    Errors: `ConfigError` for an unknown name, for linear attention, and for compiled steps.
    """
    if not lookup(CACHES, cache, "decode.cache"):
        return made
    if model.config.stack.attention_rule == "linear":
        raise ConfigError(
            "decode.cache='int8' rounds keys and values; linear attention caches none. Set decode.cache='exact'."
        )
    if compile:
        raise ConfigError("Compiled steps need an exact KV cache. Set decode.compile=false, or decode.cache='exact'.")
    made = sharing_weights(model) if made is model else made
    made.rounds_cache = True
    return made


def refuse_int8(model: Transformer) -> Transformer:
    """Always raises `ConfigError`."""
    raise ConfigError(
        "decode.precision='int8' is computed by our C++ (glassformer.fast), which is off here. Use fast.for_decoding() "
        "without GLASSFORMER_FAST=0, or 'float32'."
    )


PLAIN: dict[str, Callable[[Transformer], Transformer]] = {
    "float32": lambda model: model,
    "bfloat16": lambda model: copy.deepcopy(model).to(torch.bfloat16),
    "int8": refuse_int8,
}


def sharing_weights(model: Transformer) -> Transformer:
    """Copy the modules of a model, sharing its tensors."""
    return copy.deepcopy(model, {id(each): each for each in (*model.parameters(), *model.buffers())})


def device_of(model: Transformer) -> torch.device:
    """The device of a model's parameters."""
    return next(model.parameters()).device


def chosen_precision(requested: str, device: torch.device) -> tuple[str, str]:
    """Return the precision for decoding, and the reason. "auto": bfloat16 if that is fast here, else float32."""
    if requested != "auto":
        return requested, f"{requested}, as decode.precision says"
    if has_bfloat16(device):
        return "bfloat16", "bfloat16, as this processor has bfloat16 arithmetic"
    return "float32", "float32, as this processor has no bfloat16 arithmetic"


class Kernels:
    """What decoding computes with, in plain torch; `model.kernels` may be a subclass that is faster."""

    def log_sums(self, logits: Float[Tensor, "rows V"]) -> Float[Tensor, "rows 1"]:
        """The logarithms of the sums of e^z, in float64 on the CPU."""
        return logits.logsumexp(-1, keepdim=True).cpu().double()

    def largest(self, logits: Float[Tensor, "rows V"], k: int) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
        """The k largest logits, in float64, and their ids, on the CPU."""
        values, ids = logits.topk(k)
        return values.cpu().double(), ids.cpu()

    def write(
        self, model: Transformer, rows: Rows, choose: Choose, eos: int, stop: Stop | None
    ) -> Iterator[Emitted] | None:
        """What `generate` yields for these rows; None if it is to write them step by step."""


PLAIN_TORCH = Kernels()


def kernels_of(model: Transformer) -> Kernels:
    """The kernels that were put on a model, or else plain torch."""
    return cast(Kernels, model.kernels or PLAIN_TORCH)
