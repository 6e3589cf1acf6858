"""Decoding steps in C++: one call for all blocks, in place of about twenty operations of torch in each.

Between two products of a step lie a dozen small operations, which take longer to begin than to do. parts/cpp/step.cpp
does them all; this module tells it of the blocks, and where their keys and values lie.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import torch
from torch import nn

from glassformer.attend import Mask
from glassformer.foundation.shapes import Float, Tensor
from glassformer.model.stack import with_cache
from glassformer.model.transformer import Transformer
from glassformer.parts import Cache
from glassformer.parts.cache import Growing, LayerCache
from glassformer.parts.described import CBlock, Described, describe
from glassformer.parts.native import declared, has_cpp
from glassformer.parts.positions import Rotation
from glassformer.parts.slots import Room

LAYOUTS = ("half", "interleaved")
"""Pairs of numbers that C++ can rotate, of `ROTARY_LAYOUTS`."""


class CRotation(ctypes.Structure):
    """`Rotation` of rows.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("pairs", "interleaved", "row")),
        *((name, ctypes.c_void_p) for name in ("cos", "sin")),
    )


class CKeys(ctypes.Structure):
    """`Keys` of rows.h."""

    _fields_ = (
        ("length", ctypes.c_int64),
        *((name, ctypes.c_int64 * 3) for name in ("keys", "values")),
        ("added", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("added_row", "added_head")),
        ("blind", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("blind_row", "blind_head")),
        *((name, ctypes.c_void_p) for name in ("at", "k", "v")),
    )


class NativeSteps:
    """Replaces `with_cache`: runs steps of one token per row in C++.

    What it does not do is left to `with_cache`: several tokens at once (prompts), the first token of a row, gradients,
    a cache in 8 bits, a model that is watched (`watch_attention`), and modules with hooks.
    """

    def __init__(self) -> None:
        self._last: tuple[weakref.ref[Cache], Described | None] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> NativeSteps:
        """Copied weights lie elsewhere."""
        return NativeSteps()

    def __call__(
        self, blocks: nn.ModuleList, x: Float[Tensor, "B T D"], shared: dict[str, Any], cache: Cache
    ) -> Float[Tensor, "B T D"]:
        """Return the residual stream after all blocks."""
        told = self._described(blocks, cache)
        if told is None or not may_step(told, blocks, x, shared, cache):
            return with_cache(blocks, x, shared, cache)
        return step(told, x, shared, cache)

    def _described(self, blocks: nn.ModuleList, cache: Cache) -> Described | None:
        """The description of the blocks. It is made anew for each cache, as weights may have been exchanged since."""
        last = self._last
        if last is None or last[0]() is not cache:
            last = self._last = (weakref.ref(cache), describe(blocks))
        return last[1]


def may_step(told: Described, blocks: nn.ModuleList, x: Tensor, shared: dict[str, Any], cache: Cache) -> bool:
    """Whether C++ can run this step."""
    if x.shape[1] != 1 or x.dtype != told.dtype or x.device.type != "cpu" or shared["mask"].value_bias is not None:
        return False
    rotation: Rotation | None = shared["rotation"]
    if rotation is not None and (rotation.layout not in LAYOUTS or rotation.cos.dtype != x.dtype):
        return False
    if told.most is not None and len(x) > told.most:
        return False
    if torch.is_grad_enabled() or blocks.training or torch.is_autocast_enabled("cpu") or not told.as_told:
        return False
    if not all(type(each) in (Growing, Room) and each.buffers is not None for each in cast(list[Any], cache.layers)):
        return False
    return not told.crosses or all(each.complete for each in cache.cross)


def step(told: Described, x: Float[Tensor, "B 1 D"], shared: dict[str, Any], cache: Cache) -> Float[Tensor, "B 1 D"]:
    """One token per row through all blocks; its keys and values are added to the cache."""
    (B, _, D), layers = x.shape, cast(list[Growing | Room], cache.layers)
    for layer in layers:
        layer.claim()
    heads = told.attentions[0].n_heads
    held: list[Any] = [at := layers[0].newest(B)]
    if int(at.max()) >= cast(Any, layers[0]).buffers[0].shape[2]:
        raise IndexError(
            f"The cache has no column {int(at.max())}: more tokens were written than its rows have room for."
        )
    own = keys_of(layers, shared["mask"], x, heads, held)
    own.at = at.data_ptr()
    cross = keys_of(cache.cross, shared["memory_mask"], x, heads, held) if told.crosses else CKeys()
    rotation = rotation_of(shared["rotation"], B, held)
    y = x.reshape(B, D).clone(memory_format=torch.contiguous_format)
    references = [ctypes.byref(each) for each in (rotation, own, cross)]
    function(told.dtype)(told.blocks, len(told.blocks), y.data_ptr(), B, D, *references, torch.get_num_threads())
    return y.view(B, 1, D)


def keys_of(layers: Sequence[LayerCache], mask: Mask, x: Tensor, heads: int, held: list[Any]) -> CKeys:
    """Where keys and values lie, and which may be read. `held` gets what must outlive the call."""
    B, S = len(x), layers[0].read()[0].shape[2]
    found = CKeys(S)
    for of, pointers, i in (("keys", "k", 0), ("values", "v", 1)):
        buffers: list[Tensor] = [cast(Any, layer).buffers[i] for layer in layers]
        lie, shape = buffers[0].stride(), buffers[0].shape
        alike = all(each.stride() == lie and each.shape == shape and each.dtype == x.dtype for each in buffers)
        if not (alike and lie[3] == 1 and shape[0] >= B):
            raise ValueError(f"All layers of a cache must lie alike in memory, with {B} rows or more; got {[*shape]}.")
        addresses = (ctypes.c_void_p * len(layers))(*(each.data_ptr() for each in buffers))
        setattr(found, of, lie[:3])
        setattr(found, pointers, ctypes.addressof(addresses))
        held += [buffers, addresses]
    lowered = mask.lower(1, S, x)
    added = None if lowered.added is None else spread(lowered.added, B, heads, S)
    blind = None if lowered.blind is None else spread(lowered.blind, B, heads, 1)
    if added is not None:
        found.added, (found.added_row, found.added_head) = added.data_ptr(), added.stride()[:2]
    if blind is not None:
        found.blind, (found.blind_row, found.blind_head) = blind.data_ptr(), blind.stride()[:2]
    held += [added, blind]
    return found


def spread(each: Tensor, B: int, heads: int, n: int) -> Tensor:
    """[B, H, 1, n], whose numbers of one row and head lie side by side."""
    wide = each.expand(B, heads, 1, n)
    return wide if wide.stride(-1) == 1 else wide.contiguous()


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
    sizes = (ctypes.c_int64, pointer, ctypes.c_int64, ctypes.c_int64)
    return declared(name, ctypes.POINTER(CBlock), *sizes, *[pointer] * 3, ctypes.c_int)


def can_step(model: Transformer) -> bool:
    """Whether the steps of a model can run in C++ here.

    A model whose layers read windows keeps its cache of bounded size instead, whose columns move.
    """
    reader = model.reader
    if reader.pattern is not None or not has_cpp() or next(model.parameters()).device.type != "cpu":
        return False
    return (told := describe(reader.blocks)) is not None and told.as_told


def with_native_steps(model: Transformer) -> Transformer:
    """Make the model run its steps in C++ if it can, and return it."""
    if can_step(model):
        model.reader.along = NativeSteps()
    return model
