"""Where the keys and values of a cache lie, and which may be read, as our C++ is told it (`Keys` of keys.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, cast
from weakref import ref

import torch

from glassformer.base.shapes import Float, Tensor
from glassformer.nn.cache import Growing, LayerCache
from glassformer.nn.compact_cache import Rolling, Rounded, Slotted
from glassformer.nn.mask import Mask


class CKeys(ctypes.Structure):
    """`Keys` of keys.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("length", "causal", "fresh")),
        *((name, ctypes.c_int64 * 3) for name in ("keys", "values", "key_steps", "value_steps")),
        *(("added", ctypes.c_void_p), ("added_at", ctypes.c_int64 * 3)),
        *(("blind", ctypes.c_void_p), ("blind_at", ctypes.c_int64 * 3)),
        *((name, ctypes.c_void_p) for name in ("at", "k", "v", "k_step", "v_step", "memory", "lineage")),
        ("known", ctypes.c_int64),
    )


class CNearby(ctypes.Structure):
    """`Nearby` of keys.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "first")),
        *((name, ctypes.c_void_p) for name in ("columns", "at", "layers", "lineage")),
        ("known", ctypes.c_int64),
        ("lie", ctypes.c_int64 * 3),
    )


def numbers_of(layer: LayerCache) -> LayerCache:
    """The layer cache that holds a layer's keys and values as numbers; in 8 bits, their steps lie in another."""
    return layer.numbers if isinstance(layer, Rounded) else layer


def can_lie_in_buffers(layers: Sequence[LayerCache]) -> bool:
    """Whether C++ can read these layers where they are, and write new keys there.

    They are of one kind, and what convolutions keep lies in buffers if they do: `new_cache` and `new_slots` see to it.
    """
    return type(numbers_of(layers[0])) in (Growing, Rolling, Slotted)


def may_go_on(layers: Sequence[LayerCache]) -> bool:
    """Whether each text has begun: whether there are keys in buffers."""
    first = cast(Any, layers[0])
    return can_lie_in_buffers(layers) and first.buffers is not None


class Places:
    """Where all layers of a cache keep their keys and values: told once, as long as no layer moves."""

    def __init__(self, layers: Sequence[LayerCache], dtype: torch.dtype) -> None:
        """Errors: `ValueError` for layers that do not lie alike in memory."""
        held = cast(list[Any], layers)
        buffers: list[tuple[Tensor, Tensor]] = [layer.buffers for layer in held]
        self._keys = [ref(keys) for keys, _ in buffers]  # a layer that moves must not keep its old room
        self._room = (buffers[0][0].shape[0], buffers[0][0].shape[2])
        self._spare = isinstance(numbers_of(layers[0]), Slotted)  # rows for texts to come
        self.told = CKeys()
        self._addresses: list[Any] = []
        rounds = isinstance(held[0], Rounded)
        self._tell(buffers, torch.int8 if rounds else dtype, ("keys", "values"), ("k", "v"))
        if rounds:
            steps = [layer.steps.buffers for layer in held]
            self._tell(steps, torch.float32, ("key_steps", "value_steps"), ("k_step", "v_step"))

    def _tell(
        self, pairs: list[tuple[Tensor, Tensor]], dtype: torch.dtype, lie: tuple[str, str], at: tuple[str, str]
    ) -> None:
        for tensors, of, pointers in zip(zip(*pairs, strict=True), lie, at, strict=True):
            strides, shape = tensors[0].stride(), tensors[0].shape
            alike = all(each.stride() == strides and each.shape == shape and each.dtype == dtype for each in tensors)
            if not (alike and (strides[3] == 1 or shape[3] == 1)):
                raise ValueError(f"All layers of a cache must lie alike in memory, in {dtype}; got {[*shape]}.")
            addresses = (ctypes.c_void_p * len(tensors))(*(each.data_ptr() for each in tensors))
            setattr(self.told, of, strides[:3])
            setattr(self.told, pointers, ctypes.addressof(addresses))
            self._addresses.append(addresses)

    def are_those_of(self, layers: Sequence[LayerCache]) -> bool:
        """Whether each layer is still where it was."""
        return all(layer.buffers[0] is keys() for layer, keys in zip(cast(list[Any], layers), self._keys, strict=True))

    def reading(
        self, layers: Sequence[LayerCache], mask: Mask, x: Float[Tensor, "B T D"], heads: int, held: list[Any]
    ) -> CKeys:
        """These places for the next call, which reads all columns. `held` gets what must outlive the call.

        Errors: as `lineage`.
        """
        self.told.lineage, self.told.known = self.lineage(layers, len(x), held)
        return reading(self.told, cast(Any, layers[0]).width, mask, x, heads, held)

    def lineage(self, layers: Sequence[LayerCache], B: int, held: list[Any]) -> tuple[int | None, int]:
        """Where it stands in which rows the first columns lie, and how many; the others lie in their own rows.

        Errors: `ValueError` for fewer rows or columns than are read, more rows, or layers that lie otherwise.
        """
        (rows, columns), length = self._room, cast(Any, layers[0]).width
        lineages = [each.stay() for each in layers if isinstance(each, Growing | Rounded)]
        lineage = lineages[0] if lineages else None
        if any((each is None) != (lineage is None) for each in lineages):
            raise ValueError("All layers of a cache must lie alike in memory; modules have read some of them only.")
        if lineage is None:
            fits = rows == B or (rows > B and self._spare)
        else:
            fits = len(lineage) == B and (rows >= B or lineage.shape[1] == length)
        if columns < length or not fits:
            raise ValueError(
                f"A cache must hold a row for each of {B} texts, of {length} columns; got one of {rows} by {columns}."
            )
        if lineage is None:
            return None, 0
        held.append(lineage)
        return lineage.data_ptr(), lineage.shape[1]


def reading(told: CKeys, length: int, mask: Mask, x: Float[Tensor, "B T D"], heads: int, held: list[Any]) -> CKeys:
    """Tell of the keys that each token may read. `held` gets what must outlive the call."""
    B, T, _ = x.shape
    told.length, told.causal, told.added, told.blind, told.memory = length, mask.only_causal, None, None, None
    if mask.only_causal:  # no numbers for pairs of tokens are needed
        return told
    lowered = mask.lower(T, length, x)
    if lowered.added is not None:
        added = lowered.added.expand(B, heads, T, length)
        held.append(added := added if added.stride(-1) == 1 else added.contiguous())
        told.added, told.added_at = added.data_ptr(), added.stride()[:3]
    if lowered.blind is not None:
        held.append(blind := lowered.blind.expand(B, heads, T, 1))
        told.blind, told.blind_at = blind.data_ptr(), blind.stride()[:3]
    return told
