"""Decoding steps in C++: one call for all blocks, in place of about twenty operations of torch in each.

Between two products of a step lie a dozen small operations, which take longer to begin than to do. parts/cpp/step.cpp
does them all; this module tells it of the blocks, and where their keys and values lie.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch

from glassformer.decode.native_keys import CKeys, Places, lie_in_buffers
from glassformer.foundation.shapes import Float, Tensor
from glassformer.model.stack import Stack, with_cache
from glassformer.model.transformer import Transformer
from glassformer.parts import Cache
from glassformer.parts.cache import Growing, LayerCache
from glassformer.parts.described import CBlock, Described, describe
from glassformer.parts.native import declared, has_cpp
from glassformer.parts.positions import Rotation
from glassformer.parts.rounded import Rounded
from glassformer.parts.slots import Room

LAYOUTS = ("half", "interleaved")
"""Pairs of numbers that C++ can rotate, of `ROTARY_LAYOUTS`."""


class CRotation(ctypes.Structure):
    """`Rotation` of rows.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("pairs", "interleaved", "row")),
        *((name, ctypes.c_void_p) for name in ("cos", "sin")),
    )


class NativeSteps:
    """Replaces `with_cache`: runs steps of one token per row in C++.

    What it does not do is left to `with_cache`: several tokens at once (prompts), the first token of a row, gradients,
    a model that is watched (`watch_attention`), and modules with hooks.
    """

    def __init__(self) -> None:
        self._running: Running | None = None

    def __reduce__(self) -> tuple[type[NativeSteps], tuple[()]]:
        """Copied weights lie elsewhere, so a copy knows nothing yet."""
        return NativeSteps, ()

    def __call__(
        self, stack: Stack, x: Float[Tensor, "B T D"], shared: dict[str, Any], cache: Cache
    ) -> Float[Tensor, "B T D"]:
        """Return the vectors after all blocks and the last norm."""
        if x.shape[1] != 1 or not lie_in_buffers(cache.layers):
            self._running = None
            return with_cache(stack, x, shared, cache)
        if (running := self._running) is None:
            running = self._running = Running(describe(stack.blocks, stack.norm))
        if running.told is None or not may_step(running.told, stack, x, shared, cache):
            return with_cache(stack, x, shared, cache)
        return step(running, running.told, x, shared, cache)


@dataclass
class Running:
    """The blocks as they were told, and where the last cache lay.

    It ends when a prompt is read, as weights may have been exchanged since.
    """

    told: Described | None
    own: Places | None = None
    cross: Places | None = None


def may_step(told: Described, stack: Stack, x: Tensor, shared: dict[str, Any], cache: Cache) -> bool:
    """Whether C++ can run this step."""
    if x.dtype != told.dtype or x.device.type != "cpu" or shared["mask"].value_bias is not None:
        return False
    rotation: Rotation | None = shared["rotation"]
    if rotation is not None and (rotation.layout not in LAYOUTS or rotation.cos.dtype != x.dtype):
        return False
    if told.most is not None and len(x) > told.most:
        return False
    if torch.is_grad_enabled() or stack.training or torch.is_autocast_enabled("cpu") or not told.as_told:
        return False
    return not told.crosses or all(each.complete for each in cache.cross)


def step(
    running: Running, told: Described, x: Float[Tensor, "B 1 D"], shared: dict[str, Any], cache: Cache
) -> Float[Tensor, "B 1 D"]:
    """One token per row through all blocks and the last norm; its keys and values are added to the cache.

    While C++ computes, another thread may run a step with another cache: what this one reads is kept by its own names.
    """
    (B, _, D), layers = x.shape, cast(list[Growing | Room | Rounded], cache.layers)
    for layer in layers:
        layer.claim()
    heads = told.attentions[0].n_heads
    held: list[Any] = [at := layers[0].newest(B)]
    running.own = mine = places(running.own, layers, x.dtype)
    own = mine.reading(layers[0].width, shared["mask"], x, heads, held)
    own.at = at.data_ptr()
    cross = CKeys()
    if told.crosses:
        running.cross = read = places(running.cross, cache.cross, x.dtype)
        cross = read.reading(cast(Any, cache.cross[0]).width, shared["memory_mask"], x, heads, held)
    rotation = rotation_of(shared["rotation"], B, held)
    y = x.reshape(B, D).clone(memory_format=torch.contiguous_format)
    last, *references = (ctypes.byref(each) for each in (told.last, rotation, own, cross))
    function(told.dtype)(told.blocks, len(told.blocks), last, y.data_ptr(), B, D, *references, torch.get_num_threads())
    return y.view(B, 1, D)


def places(before: Places | None, layers: Sequence[LayerCache], dtype: torch.dtype) -> Places:
    """Those told before, if they are still true."""
    return before if before is not None and before.are_those_of(layers) else Places(layers, dtype)


def rotation_of(rotation: Rotation | None, B: int, held: list[Any]) -> CRotation:
    """The angles of each row."""
    if rotation is None:
        return CRotation()
    pairs = rotation.cos.shape[-1]
    cos, sin = (each.expand(B, 1, pairs).contiguous() for each in (rotation.cos, rotation.sin))
    held += [cos, sin]
    return CRotation(pairs, LAYOUTS.index(rotation.layout), pairs, cos.data_ptr(), sin.data_ptr())


@cache
def function(dtype: torch.dtype) -> Any:
    """The function of step.cpp for numbers of this dtype."""
    name = {torch.float32: "step_float", torch.float64: "step_double"}[dtype]
    pointer = ctypes.c_void_p
    sizes = (ctypes.c_int64, pointer, pointer, ctypes.c_int64, ctypes.c_int64)
    return declared(name, ctypes.POINTER(CBlock), *sizes, *[pointer] * 3, ctypes.c_int)


def can_step(model: Transformer) -> bool:
    """Whether the steps of a model can run in C++ here.

    A model whose layers read windows keeps its cache of bounded size instead, whose columns move.
    """
    reader = model.reader
    if reader.pattern is not None or not has_cpp() or next(model.parameters()).device.type != "cpu":
        return False
    return (told := describe(reader.blocks, reader.norm)) is not None and told.as_told


def with_native_steps(model: Transformer) -> Transformer:
    """Make the model run its steps in C++ if it can, and return it."""
    if can_step(model):
        model.reader.along = NativeSteps()
    return model
