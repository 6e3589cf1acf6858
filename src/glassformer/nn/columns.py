"""What a layer keeps of its tokens while decoding, so that a step projects only new ones: keys and values in columns.

The kinds: `Growing`, for texts of any length; `Once`, for an encoder's memory; `Fixed` (fixed.py), in constant shapes;
`State` (state.py), for linear attention; `Rolling` (rolling.py), for a window. Attention uses them all alike.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol, runtime_checkable

import torch

from glassformer.base.shapes import Int, Num, Tensor

SHORT = 16
"""Columns that a buffer begins with at the least: while an answer is shorter, it never moves."""


@runtime_checkable
class LayerCache(Protocol):
    """What attention needs from the cache of one layer."""

    @property
    def complete(self) -> bool:
        """Whether all keys are already held, so that none need projecting."""
        ...

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds the keys and values of new tokens [B, G, T, K]; returns all keys and values that may be read."""
        ...

    def read(self) -> tuple[Tensor, Tensor]:
        """Returns all keys and values."""
        ...

    def select(self, rows: Tensor) -> None:
        """Keeps the given rows of the batch, in the order given."""
        ...


@runtime_checkable
class TakesBack(LayerCache, Protocol):
    """A layer cache from which the last tokens can be removed."""

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens."""
        ...


class Columns:
    """Keys and values of one layer, in the first `used` columns of a buffer; subclasses decide how the buffer grows."""

    complete = False

    def __init__(self) -> None:
        self.used = 0
        self._held: tuple[Tensor, Tensor] | None = None

    @property
    def buffers(self) -> tuple[Tensor, Tensor] | None:
        """Keys and values as they lie in memory, used columns first; None before any was appended."""
        return self._held

    def read(self) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S _"]]:
        """Returns all keys and values that are held."""
        assert self._held is not None, "nothing was appended yet"
        k, v = self._held
        return k[:, :, : self.used], v[:, :, : self.used]

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows."""
        if self._held is not None:
            self._held = (self._held[0].index_select(0, rows), self._held[1].index_select(0, rows))


class Claimable(Columns):
    """Columns that our C++ can fill: it is given room for them first."""

    def append(
        self, k: Num[Tensor, "B G T K"], v: Num[Tensor, "B G T _"]
    ) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S _"]]:
        """Adds keys and values after those that stay; returns all.

        With gradients enabled it copies everything: a backward pass must find its tensors unchanged.
        """
        if self._held is None:
            self._held = (k, v)
        elif torch.is_grad_enabled():
            old_k, old_v = self.staying()
            self._held = (torch.cat([old_k, k], dim=2), torch.cat([old_v, v], dim=2))
            self.used = old_k.shape[2]
        else:
            self.make_room(k.shape[2])
            for room, new in zip(self._held, (k, v), strict=True):
                room[:, :, self.used : self.used + new.shape[2]] = new
        self.used += k.shape[2]
        return self.read()

    def staying(self) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S _"]]:
        """Keys and values that the next step finds."""
        return self.read()

    @abstractmethod
    def make_room(self, n: int) -> None:
        """Moves to a larger buffer, if n more columns would not fit into this one; not while empty.

        Call it before a compiled step, which then never moves the buffer and always reads a part of it.
        """

    @property
    def width(self) -> int:
        """How many columns are read."""
        return self.used

    def claim(self, shape: tuple[int, int, int, int], dtype: torch.dtype, *, values: bool = True) -> None:
        """Adds columns [B, G, T, K] on a CPU, which the caller fills: in `buffers`, at `newest`.

        `values`: whether the keys have values.
        """
        if self._held is None:
            B, G, T, K = shape
            k, v = (torch.empty(B, G, self._first_room(T), size, dtype=dtype, device="cpu") for size in (K, K * values))
            self._held = (k, v)
        else:
            self.make_room(shape[2])
        self.used += shape[2]

    def _first_room(self, n: int) -> int:
        """How many columns a buffer for n tokens begins with."""
        return n

    def newest(self, B: int, T: int) -> Int[Tensor, "B T"] | None:
        """The columns of the tokens that were claimed last; None: the last of `width`, in order."""
        return None


class Growing(Claimable):
    """A cache of any length: its buffer doubles when full, so most steps copy nothing.

    Nor does a selection of rows while C++ reads the buffer: `lineage` then says where their columns lie. Rows of a beam
    share the columns of those they extend, so these are read from memory once for all of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lineage: Int[Tensor, "B N"] | None = None
        """Of the first columns of each row: the row of `buffers` where each lies. Later ones lie in their own."""
        self._stays = False

    def stay(self) -> Int[Tensor, "B N"] | None:
        """Tells C++, which reads all columns where they lie, the `lineage`: from now on, rows stay there."""
        self._stays = True
        return self.lineage

    def append(
        self, k: Num[Tensor, "B G T K"], v: Num[Tensor, "B G T _"]
    ) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S _"]]:
        """As `Claimable.append`."""
        self.settle()
        return super().append(k, v)

    def read(self) -> tuple[Num[Tensor, "B G S K"], Num[Tensor, "B G S _"]]:
        """Returns all keys and values that are held, and moves each row's into its own: read all layers, or none."""
        self.settle()
        return super().read()

    def clear(self) -> None:
        """Forgets everything."""
        self.__init__()

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keeps the given rows, where they lie if C++ reads them; otherwise copies those whose place changes.

        Columns to come need rows of their own, so more rows than the buffer has are copied. So are half as many or
        fewer, which frees the memory of the others.
        """
        if self._held is None:
            return
        room = len(self._held[0])
        if self._stays and room < 2 * len(rows) and (len(rows) <= room or self.complete):
            self.lineage = self._origins()[rows]
        elif self.lineage is not None:
            self.lineage = self._origins()[rows]
            self.settle()
        elif len(rows) != room or self.used == self._held[0].shape[2]:
            self._move(self._held[0].shape[2], rows)
        else:
            moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero()[:, 0]
            for held in self._held:
                columns = held[:, :, : self.used]
                columns.index_copy_(0, moved, columns.index_select(0, rows[moved]))

    def _origins(self) -> Int[Tensor, "B S"]:
        """The row where each column of each row lies."""
        assert self._held is not None
        n, known = (len(self._held[0]), 0) if self.lineage is None else self.lineage.shape
        own = torch.arange(n, device=self._held[0].device)[:, None].expand(-1, self.used - known)
        return own if self.lineage is None else torch.cat([self.lineage, own], dim=1)

    def settle(self) -> None:
        """Copies each row's columns into a row of its own, for modules to read, if they lie elsewhere."""
        if self._held is not None and self.lineage is not None:
            self._move(self._held[0].shape[2])
        self._stays = False

    def make_room(self, n: int) -> None:
        """Moves to a buffer of twice the size needed, if n more columns would fill this one; not while empty."""
        if self._held is not None and self.used + n >= self._held[0].shape[2]:
            self._move(2 * (self.used + n))

    def _first_room(self, n: int) -> int:
        """As many columns as the next step would move to, and enough for a short answer."""
        return max(SHORT, 2 * (n + 1))

    def _move(self, columns: int, rows: Tensor | None = None) -> None:
        """Moves to a buffer of so many columns, with a row for each, or without a lineage for each of `rows`."""
        assert self._held is not None
        assert rows is None or self.lineage is None
        k, v = self._held
        at: tuple[Tensor | slice, ...] = (slice(None) if rows is None else rows, slice(None), slice(self.used))
        if self.lineage is not None:
            device = k.device
            groups = torch.arange(k.shape[1], device=device)[:, None]
            at = (self._origins()[:, None], groups, torch.arange(self.used, device=device))
        self._held, self.lineage = (self._moved(k[at], columns), self._moved(v[at], columns)), None

    def _moved(self, used: Tensor, columns: int) -> Tensor:
        room = used.new_empty(*used.shape[:2], columns, used.shape[3])
        room[:, :, : self.used] = used
        return room

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens; the next ones are written over them."""
        self.settle()
        self.used = min(self.used, length)


class Once(Growing):
    """A cache that is filled at the first step and only read afterwards."""

    @property
    def complete(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the first step has filled it."""
        return self._held is not None

    def _first_room(self, n: int) -> int:
        return n  # no more will come
