"""Decoding steps in C++: one call for all blocks, in place of some twenty operations of torch in each.

Between two products of a step lie a dozen small operations, which take longer to begin than to do. parts/cpp/step.cpp
does them all; this module tells it of the blocks, and where their keys and values lie.
"""

from __future__ import annotations

import ctypes
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


class CRotation(ctypes.Structure):
    """`Rotation` of step.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("pairs", "interleaved", "row")),
        *((name, ctypes.c_void_p) for name in ("cos", "sin")),
    )


class CKeys(ctypes.Structure):
    """`Keys` of step.cpp."""

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
    a cache in 8 bits, and a model that is watched (`watch_attention`).
    """

    def __init__(self) -> None:
        self._of: nn.ModuleList | None = None
        self._told: Described | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> NativeSteps:
        """Copied weights lie elsewhere."""
        return NativeSteps()

    def __call__(
        self, blocks: nn.ModuleList, x: Float[Tensor, "B T D"], shared: dict[str, Any], cache: Cache
    ) -> Float[Tensor, "B T D"]:
        """Return the residual stream after all blocks."""
        if blocks is not self._of:
            self._of, self._told = blocks, describe(blocks)
        if self._told is None or not may_step(self._told, blocks, x, shared["mask"], cache):
            return with_cache(blocks, x, shared, cache)
        return step(self._told, x, shared, cache)


def may_step(told: Described, blocks: nn.ModuleList, x: Tensor, mask: Mask, cache: Cache) -> bool:
    """Whether C++ can run this step."""
    if x.shape[1] != 1 or x.dtype != told.dtype or mask.value_bias is not None:
        return False
    if told.most is not None and len(x) > told.most:
        return False
    if torch.is_grad_enabled() or blocks.training or torch.is_autocast_enabled("cpu") or not told.softmax:
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
    own = keys_of(layers, shared["mask"], x, heads, held)
    own.at = at.data_ptr()
    cross = keys_of(cache.cross, shared["memory_mask"], x, heads, held) if told.crosses else CKeys()
    rotation = rotation_of(shared["rotation"], held)
    y = x.reshape(B, D).clone()
    references = [ctypes.byref(each) for each in (rotation, own, cross)]
    function(told.dtype)(told.blocks, len(told.blocks), y.data_ptr(), B, D, *references, torch.get_num_threads())
    return y.view(B, 1, D)


def keys_of(layers: Sequence[LayerCache], mask: Mask, x: Tensor, heads: int, held: list[Any]) -> CKeys:
    """Where keys and values lie, and which may be read. `held` gets what must outlive the call."""
    B, S = len(x), layers[0].read()[0].shape[2]
    found = CKeys(S)
    for of, pointers, i in (("keys", "k", 0), ("values", "v", 1)):
        buffers: list[Tensor] = [cast(Any, layer).buffers[i] for layer in layers]
        lie = buffers[0].stride()
        assert len(buffers[0]) >= B, "every row has its keys"
        assert all(each.stride() == lie and each.dtype == x.dtype for each in buffers), "all layers lie alike"
        assert lie[3] == 1, "the numbers of a vector lie side by side"
        addresses = (ctypes.c_void_p * len(layers))(*(each.data_ptr() for each in buffers))
        setattr(found, of, lie[:3])
        setattr(found, pointers, ctypes.addressof(addresses))
        held += [buffers, addresses]
    lowered = mask.lower(1, S, x)
    added, blind = (None if each is None else spread(each, B, heads) for each in (lowered.added, lowered.blind))
    if added is not None:
        found.added, (found.added_row, found.added_head) = added.data_ptr(), added.stride()[:2]
    if blind is not None:
        found.blind, (found.blind_row, found.blind_head) = blind.data_ptr(), blind.stride()[:2]
    held += [added, blind]
    return found


def spread(each: Tensor, B: int, heads: int) -> Tensor:
    """[B, H, 1, n], whose numbers of one row and head lie side by side."""
    wide = each.expand(B, heads, 1, each.shape[-1])
    return wide if wide.stride(-1) == 1 else wide.contiguous()


def rotation_of(rotation: Rotation | None, held: list[Any]) -> CRotation:
    """The angles of each row."""
    if rotation is None:
        return CRotation()
    cos, sin = (each.contiguous() for each in (rotation.cos, rotation.sin))
    held += [cos, sin]
    pairs = cos.shape[-1]
    row = 0 if cos.ndim == 2 else pairs
    return CRotation(pairs, rotation.layout == "interleaved", row, cos.data_ptr(), sin.data_ptr())


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
    return reader.pattern is None and (told := describe(reader.blocks)) is not None and told.softmax and has_cpp()


def with_native_steps(model: Transformer) -> Transformer:
    """Make the model run its steps in C++ if it can, and return it."""
    if can_step(model):
        model.reader.along = NativeSteps()
    return model
