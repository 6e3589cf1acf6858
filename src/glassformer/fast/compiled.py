"""Compiled decoding steps, which save the time of the many small operations between matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import cast

import torch
import torch.fx.experimental._config as shapes
from torch import nn

from glassformer.base.errors import ConfigError
from glassformer.base.shapes import Float, Tensor
from glassformer.nn.attention import LayerCache
from glassformer.nn.cache import Cache, Claimable
from glassformer.nn.stack import Context, Stack
from glassformer.nn.transformer import Transformer

KINDS = 32
"""How many kinds of steps may be compiled: with or without padding, one row or several, different blocks."""


class CompiledStack(Stack):
    """A stack that runs steps of one token per row by compiled code, which all blocks share.

    The code is compiled at first use, separately for one row and for several, and for the layers of a `Growing` cache
    and of `Slots`. It works for any number of rows and keys. Several tokens (prompts) are left to `Stack.run`.
    """

    step: Callable[..., Tensor]
    """`step`, compiled."""

    def run(
        self, x: Float[Tensor, "B T D"], contexts: Sequence[Context], cache: Cache | None = None
    ) -> Float[Tensor, "B T D"]:
        """As `Stack.run`."""
        # A first token finds no keys, which would compile code for one use.
        if cache is None or x.shape[1] > 1 or cache.length == 1:
            return super().run(x, contexts, cache)
        with many_kinds(), own_lengths():
            layers = zip(self.blocks, cache.layers, cache.cross, cache.convolved_layers, strict=True)
            for (block, layer, cross, convolved), own in zip(layers, contexts, strict=True):
                for each in (layer, *(convolved or ())):
                    if isinstance(each, Claimable):
                        each.make_room(1)
                x = self.step(block, x, own, layer, cross, convolved)
        return self.norm(x)


def many_kinds() -> AbstractContextManager[None]:
    """Allow the compiler `KINDS` kinds of steps."""
    return torch.compiler.config.patch(recompile_limit=KINDS)  # pyright: ignore[reportAttributeAccessIssue]


def own_lengths() -> AbstractContextManager[None]:
    """Keep the compiler from assuming that two lengths which are equal now will always be equal."""
    return shapes.patch(use_duck_shape=False)  # pyright: ignore[reportAttributeAccessIssue]


def step(
    block: nn.Module,
    x: Float[Tensor, "B 1 D"],
    context: Context,
    layer: LayerCache,
    cross: LayerCache,
    convolved: tuple[LayerCache, LayerCache] | None,
) -> Float[Tensor, "B 1 D"]:
    """The function that is compiled: one block on one token per row."""
    return block(x, *context, cache=layer, cross_cache=cross, convolved=convolved)


def compile_steps(model: Transformer) -> Transformer:
    """Make the model run compiled decoding steps, and return it. Errors: as `check_compiler`."""
    check_compiler(next(model.parameters()).device)
    stack = model.reader
    stack.__class__ = CompiledStack
    cast(CompiledStack, stack).step = torch.compile(step, dynamic=True)
    return model


def check_compiler(device: torch.device) -> None:
    """Refuse to compile for a CPU without a C++ compiler, which TorchInductor needs. Errors: `ConfigError`."""
    if device.type != "cpu":
        return
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        raise ConfigError(
            "decode.compile needs a C++ compiler; neither g++ nor clang++ was found. Install one (on Debian or Ubuntu: "
            "apt-get install g++), name it in the environment variable CXX, or set decode.compile=false."
        ) from None
