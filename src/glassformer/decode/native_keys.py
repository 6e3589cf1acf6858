"""Where the keys and values of a cache lie, and which may be read, as our C++ is told it (`Keys` of keys.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, cast
from weakref import ref

import torch

from glassformer.attend import Mask
from glassformer.foundation.shapes import Float, Tensor
from glassformer.parts.cache import Growing, LayerCache
from glassformer.parts.rounded import Rounded
from glassformer.parts.slots import Room


class CKeys(ctypes.Structure):
    """`Keys` of keys.h."""

    _fields_ = (
        ("length", ctypes.c_int64),
        *((name, ctypes.c_int64 * 3) for name in ("keys", "values", "key_steps", "value_steps")),
        ("added", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("added_row", "added_head")),
        ("blind", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("blind_row", "blind_head")),
        *((name, ctypes.c_void_p) for name in ("at", "k", "v", "k_step", "v_step")),
    )


def lie_in_buffers(layers: Sequence[LayerCache]) -> bool:
    """Whether C++ can read these layers where they are."""
    for layer in cast(list[Any], layers):
        of = layer.numbers if isinstance(layer, Rounded) else layer
        if type(of) not in (Growing, Room) or of.buffers is None:
            return False
    return True


class Places:
    """Where all layers of a cache keep their keys and values: told once, as long as no layer moves."""

    def __init__(self, layers: Sequence[LayerCache], dtype: torch.dtype) -> None:
        """Errors: `ValueError` for layers that do not lie alike in memory."""
        held = cast(list[Any], layers)
        buffers: list[tuple[Tensor, Tensor]] = [layer.buffers for layer in held]
        self._keys = [ref(keys) for keys, _ in buffers]  # a layer that moves must not keep its old room
        self._room = (buffers[0][0].shape[0], buffers[0][0].shape[2])
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

    def reading(self, length: int, mask: Mask, x: Float[Tensor, "B 1 D"], heads: int, held: list[Any]) -> CKeys:
        """These places for the next call, which reads `length` columns. `held` gets what must outlive the call.

        Errors: `ValueError` for more rows or columns than there are.
        """
        B, (rows, columns) = len(x), self._room
        if rows < B or columns < length:
            raise ValueError(
                f"A cache must hold a row for each of {B} texts, of {length} columns; got one of {rows} by {columns}."
            )
        told, lowered = self.told, mask.lower(1, length, x)
        added = None if lowered.added is None else spread(lowered.added, B, heads, length)
        blind = None if lowered.blind is None else spread(lowered.blind, B, heads, 1)
        told.length, told.added, told.blind = length, None, None
        if added is not None:
            told.added, (told.added_row, told.added_head) = added.data_ptr(), added.stride()[:2]
        if blind is not None:
            told.blind, (told.blind_row, told.blind_head) = blind.data_ptr(), blind.stride()[:2]
        held += [added, blind]
        return told


def spread(each: Tensor, B: int, heads: int, n: int) -> Tensor:
    """[B, H, 1, n], whose numbers of one row and head lie side by side."""
    wide = each.expand(B, heads, 1, n)
    return wide if wide.stride(-1) == 1 else wide.contiguous()
