"""Steps of one token as compiled code: what the many small operations between the products take is saved."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.fx.experimental._config as shapes
from torch import nn

from glassformer.foundation.errors import ConfigError
from glassformer.foundation.shapes import Float, Tensor
from glassformer.model.stack import with_cache
from glassformer.model.transformer import Transformer
from glassformer.parts import Cache
from glassformer.parts.cache import Growing, LayerCache

KINDS = 32
"""Steps that differ in more than lengths: with padding or without, of one row or several, of other blocks."""


class CompiledSteps:
    """In place of `with_cache`: one more token of each row, by code that all blocks share.

    It is compiled when the first token is read: once for one row and once for several, once for the layers of a
    `Growing` cache and once for those of `Slots`; how many rows and keys there are is no part of it. Many tokens at
    once, those of a prompt, go as before.
    """

    def __init__(self) -> None:
        self._step = torch.compile(step, dynamic=True)

    def __call__(
        self, blocks: nn.ModuleList, x: Float[Tensor, "B T D"], shared: dict[str, Any], cache: Cache
    ) -> Float[Tensor, "B T D"]:
        """The stream after all blocks."""
        if x.shape[1] > 1 or cache.length == 1:  # the first token finds no keys: code of its own, for one use
            return with_cache(blocks, x, shared, cache)
        with many_kinds(), own_lengths():
            for block, layer, cross in zip(blocks, cache.layers, cache.cross, strict=True):
                if isinstance(layer, Growing):
                    layer.make_room(1)
                x = self._step(block, x, shared, layer, cross)
        return x


def many_kinds() -> AbstractContextManager[None]:
    """As many kinds of steps as there are may be compiled."""
    return torch.compiler.config.patch(recompile_limit=KINDS)  # pyright: ignore[reportAttributeAccessIssue]


def own_lengths() -> AbstractContextManager[None]:
    """Two lengths that happen to be equal when a step is compiled need not be equal ever after."""
    return shapes.patch(use_duck_shape=False)  # pyright: ignore[reportAttributeAccessIssue]


def step(
    block: nn.Module, x: Float[Tensor, "B 1 D"], shared: dict[str, Any], layer: LayerCache, cross: LayerCache
) -> Float[Tensor, "B 1 D"]:
    """What is compiled."""
    return block(x, **shared, cache=layer, cross_cache=cross)


def compile_steps(model: Transformer) -> Transformer:
    """The model, its decoder's steps compiled from now on. Errors: `ConfigError` where there is no C++ compiler."""
    check_compiler(next(model.parameters()).device)
    model.reader.along = CompiledSteps()
    return model


def check_compiler(device: torch.device) -> None:
    """Refuse to compile for a processor where nothing can: TorchInductor writes C++."""
    if device.type != "cpu":
        return
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        raise ConfigError(
            "decode.compile writes C++ and needs a compiler for it; there is no g++ or clang++ here. Install one (on "
            "Debian or Ubuntu: apt-get install g++), name it in the environment's CXX, or set decode.compile=false."
        ) from None
